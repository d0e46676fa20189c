# Builds Flexformer with GNU make alone; `make help` prints the ## comments of this file.
# The one idea: everything that depends on the machine (compiler, processor, CUDA) is settled while this file is read and
# kept in $(BUILD)/flags. Every object depends on that file, so a changed flag rebuilds and the rules stay plain.
# Names in capitals can be given on the command line, names in small letters are our own. All paths are relative, which
# is why a checkout in a folder with spaces builds.

ifeq ($(filter 4.2% 4.3% 4.4% 4.5% 5.%,$(MAKE_VERSION)),)
$(error GNU make 4.2 or newer is needed, this is $(MAKE_VERSION); on macOS: brew install make, then gmake)
endif
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

# ---- Settings --------------------------------------------------------------------------------------------------------

## CUDA=auto|0|1|emu     auto: where nvcc and a GPU are found; 1: into build/cuda; emu: on the CPU, into build/emu
CUDA ?= auto
## ARCH=native|...       the processor to build for, as for the compiler's -march (e.g. x86-64-v3)
ARCH ?= native
## DEBUG=1               for the debugger, into build/debug
DEBUG ?= 0
## SAN=asan|tsan         address and undefined-behaviour, or thread sanitizer, into build/asan or build/tsan
SAN ?=
## OMP=auto|0|1          0: one thread, without the pool of threads; auto and 1: with it
OMP ?= auto
## CXX=g++ CXXFLAGS=...  the compiler, and flags added to ours (CPPFLAGS, LDFLAGS and LDLIBS as usual)
## V=1                   shows every command in full
V ?= 0
## ARGS="--key=value"    options for the program that a target starts; for `make test`, doctest's
ARGS ?=
## RUNS="DIR DIR ..."    the run folders for `make compare`
RUNS ?=
## RUN=DIR               the run folder for `make kernels`
RUN ?=
## GOLDEN=DIR            the folder of golden files for `make golden`
GOLDEN ?=
## MIRROR=URL            a folder to fetch data sets from instead of their home
MIRROR ?=

settings := CUDA ARCH DEBUG SAN OMP CXX CXXFLAGS CPPFLAGS LDFLAGS LDLIBS V ARGS RUNS RUN GOLDEN MIRROR
empty :=
define newline


endef
space := $(empty) $(empty)
hash := \#
comma := ,

# A misspelt setting would be ignored without a word: everything given on the command line must be one of ours.
# $(call nearest,NAME,WORDS): the word with the smallest edit distance, in whatever case.
nearest = $(shell printf '%s\n' $(2) | awk -v name='$(1)' ' \
  function least(a, b, c) { a = a < b ? a : b; return a < c ? a : c } \
  function distance(s, t,    i, j, d) { \
    for (i = 0; i <= length(s); i++) d[i, 0] = i; \
    for (j = 0; j <= length(t); j++) d[0, j] = j; \
    for (i = 1; i <= length(s); i++) for (j = 1; j <= length(t); j++) d[i, j] = least(d[i-1, j] + 1, d[i, j-1] + 1, \
      d[i-1, j-1] + (substr(s, i, 1) != substr(t, j, 1))); \
    return d[length(s), length(t)] } \
  { d = distance(toupper(name), toupper($$1)); if (NR == 1 || d < best) { best = d; word = $$1 } } END { print word }')
given := $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(v)))),$(v)))
unknown := $(firstword $(filter-out $(settings) SHELL,$(given)))
ifneq ($(unknown),)
$(error there is no setting $(unknown); did you mean $(call nearest,$(unknown),$(settings))? All: $(settings))
endif

# $(call one_of,NAME,words): stops unless the setting is empty or one of the words.
one_of = $(if $(filter-out $(2),$($(1)))$(word 2,$($(1))),$(error $(1)=$($(1)): must be one of $(2)$(if \
  $(filter environment,$(origin $(1))), (the value comes from the environment))))
$(call one_of,CUDA,auto 0 1 emu)
$(call one_of,DEBUG,0 1)
$(call one_of,SAN,asan tsan fuzz)
$(call one_of,OMP,auto 0 1)
$(call one_of,V,0 1)

# Data sets: those that are fetched stand in a table, the others are made by a program.
generated_sets := listops pathfinder
data_sets = $(shell sed -n 's/^name //p' train/datasets/data_sets.txt) $(generated_sets)
wanted_sets := $(patsubst data-%,%,$(filter data-%,$(MAKECMDGOALS)))
ifneq ($(wanted_sets),)
unknown := $(firstword $(filter-out $(data_sets),$(wanted_sets)))
ifneq ($(unknown),)
$(error there is no data set $(unknown); did you mean data-$(call nearest,$(unknown),$(data_sets))? All: $(data_sets))
endif
endif
fetched := $(addprefix data-,$(filter-out $(generated_sets),$(wanted_sets)))

# NaN and infinity carry meaning here (masked scores, the check for a diverged loss); these flags assume there are none.
unsafe := $(filter -Ofast -ffast-math -funsafe-math-optimizations -ffinite-math-only -fassociative-math \
  -ffp-model=fast,$(CXX) $(CPPFLAGS) $(CXXFLAGS) $(LDFLAGS))
ifneq ($(unsafe),)
$(error $(firstword $(unsafe)) breaks the handling of NaN and infinity, which this code relies on; build without it)
endif

# ---- What this machine has -------------------------------------------------------------------------------------------

ifeq ($(origin CXX),default)
CXX := $(or $(shell for c in g++ clang++ c++; do command -v $$c >/dev/null && echo $$c && break; done),g++)
endif

# CUDA. cuda_state is off, on or emu; cuda_why says why it is off.
cuda_sources := $(wildcard cuda/*.cu)
find_nvcc = $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc))
find_gpu = $(shell PATH="$$PATH:/usr/lib/wsl/lib"; nvidia-smi -L 2>/dev/null | grep '^GPU')
find_capabilities = $(shell PATH="$$PATH:/usr/lib/wsl/lib"; \
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -x '[0-9]*\.[0-9]' | tr -d . | sort -u)
cuda_state := off
ifeq ($(CUDA),0)
  cuda_why := CUDA=0
else ifeq ($(cuda_sources),)
  cuda_why := cuda/ holds no .cu file
else ifeq ($(CUDA),emu)
  cuda_state := emu
else ifeq ($(find_nvcc),)
  cuda_why := nvcc is neither in PATH nor in /usr/local/cuda/bin or /opt/cuda/bin
else ifeq ($(CUDA),1)
  cuda_state := on
else ifeq ($(find_gpu),)
  cuda_why := no GPU found; CUDA=1 builds for one all the same
else
  cuda_state := on
endif
ifneq ($(filter 1 emu,$(CUDA)),)
ifeq ($(cuda_state),off)
$(error CUDA=$(CUDA): $(cuda_why); for the CPU alone: make CUDA=0)
endif
endif

# Code for the GPU found; where there is none for two generations, and as PTX, which later ones translate by themselves.
# g++ links: the runtime goes in statically, cuBLASLt is found where the toolkit has it.
ifeq ($(cuda_state),on)
nvcc := $(find_nvcc)
cuda_lib := $(abspath $(dir $(realpath $(nvcc)))/../lib64)
capabilities := $(find_capabilities)
cuda_archs := $(if $(capabilities),$(foreach c,$(capabilities),-gencode arch=compute_$(c)$(comma)code=sm_$(c)),\
  -gencode arch=compute_80$(comma)code=sm_80 -gencode arch=compute_90$(comma)code=[sm_90$(comma)compute_90])
cuda_libs := -L'$(cuda_lib)' -Wl,-rpath,'$(cuda_lib)' -lcublasLt -lcudart_static -ldl -lrt -lpthread
endif
cuda_flags := $(if $(filter on emu,$(cuda_state)),-DFLEXFORMER_CUDA) \
  $(if $(filter emu,$(cuda_state)),-DFLEXFORMER_EMULATION \
    $(patsubst %,-DEMU_%=1,$(subst tsan,RACES,$(subst asan,ASAN,$(SAN)))))

# One build folder per flavour: build/release, build/asan, build/cuda, build/emu-asan ...
flavour := $(patsubst 1,cuda,$(filter 1 emu,$(CUDA))) $(or $(SAN),$(if $(filter 1,$(DEBUG)),debug))
BUILD := build/$(subst $(space),-,$(or $(strip $(flavour)),release))

# The products of a*b + c are fused where the processor can (-ffp-contract=fast is g++'s default, clang must be told):
# runs of one binary must agree with each other, not with another compiler's. No trap handler and no errno is ever used.
debug_flags := -g -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS
# Null pointers fault by themselves, and the two other checks left out are no part of what this code does; together they
# take a third of the time to compile.
optimise_asan := -O1 $(debug_flags:-g=-g1) -fsanitize=address,undefined -fno-sanitize=null,object-size,vptr \
  -fno-sanitize-recover=all
optimise_tsan := -O1 $(debug_flags) -fsanitize=thread
optimise_fuzz := -O1 $(debug_flags:-g=-g1) -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow \
  -fno-sanitize-recover=all
optimise_debug := -Og $(debug_flags)
# Kernels in the emulation spend their time in its switching: -O3 would take twice as long to compile.
optimise_emu := -O1
optimise := $(or $(optimise_$(lastword $(flavour))),-O3)
# To the race detector the emulation's threads are threads; those of the CPU's kernels are for build/tsan to watch.
one_thread := $(if $(filter 0,$(OMP)),OMP=0,$(if $(filter emu,$(CUDA)),$(if $(filter tsan,$(SAN)),CUDA=emu SAN=tsan)))
base_flags := -std=c++20 $(optimise) -fno-math-errno -fno-trapping-math -ffp-contract=fast -Wall -Wextra -pthread -I. \
  $(if $(one_thread),-DFLEXFORMER_THREADS=0) $(cuda_flags)

# Nothing needs to be probed to clean, to print the help, to fetch data and so on.
building := $(filter-out clean help format $(fetched) $(if $(filter fuzz,$(SAN)),,fuzz),\
  $(or $(MAKECMDGOALS),$(.DEFAULT_GOAL)))
ifneq ($(building),)

# `make -j8 clean all`: what is to be cleaned goes now, before anything is built beside it.
dry_run := $(findstring n,$(firstword -$(MAKEFLAGS)))
ifeq ($(filter clean,$(MAKECMDGOALS))$(dry_run),clean)
$(shell rm -rf build)
endif
$(shell mkdir -p $(BUILD))

# $(call try,FLAGS,SOURCE): the compiler's complaints about a small program, or "ok" when it compiles and links.
try = $(shell p=$(BUILD)/probe.$$$$; trap 'rm -f $$p' EXIT; \
  if said=$$(printf '$(2)' | $(CXX) $(1) $(LDFLAGS) -x c++ - -x none -o $$p $(LDLIBS) 2>&1); \
  then echo ok; else echo "$$said" | head -n 3; fi)
cxx20_source := $(hash)include <concepts>\n$(hash)include <iostream>\n$(hash)include <span>\n\
  int main(int n, char** words) { std::cout << std::span(words, n).size(); }\n

compiler := $(shell $(CXX) --version 2>&1 | head -n 1)
asked := $(compiler) | $(CXX) $(base_flags) ARCH=$(ARCH) $(CPPFLAGS) $(CXXFLAGS) | $(LDFLAGS) $(LDLIBS) \
  | $(cuda_state) $(nvcc) $(cuda_archs)

# $(call differ,a,b): empty when equal.  $(call record,file,text): writes the file only when its text changes.
differ = $(subst x$(1),,x$(2))$(subst x$(2),,x$(1))
record = $(if $(call differ,$(file <$(1)),$(2)),$(file >$(1),$(2)))

# found.mk holds what the probes found: arch_flag. It counts while `asked` is unchanged.
ifneq ($(call differ,$(file <$(BUILD)/flags),$(asked)),)
new_flags := yes
user_flags := $(CPPFLAGS) $(CXXFLAGS)
arch_flag := -march=$(ARCH)
said := $(call try,$(base_flags) $(arch_flag) $(user_flags),$(cxx20_source))
ifneq ($(said),ok)
  # Some compilers do not know -march=native (older clang on ARM).
  arch_flag := $(if $(filter native,$(ARCH)),$(if $(filter ok,$(call try,-mcpu=native,$(cxx20_source))),-mcpu=native))
  ifneq ($(if $(filter native,$(ARCH)),$(call try,$(base_flags) $(arch_flag) $(user_flags),$(cxx20_source))),ok)
    $(error CXX=$(CXX) ARCH=$(ARCH) $(user_flags): cannot build a C++20 program with these \
      (needed: g++ 12 or clang 14, or newer; on Debian: apt-get install g++). The compiler says: $(said))
  endif
endif

$(file >$(BUILD)/found.mk,arch_flag := $(arch_flag))
$(file >$(BUILD)/flags,$(asked))
else
include $(BUILD)/found.mk
endif
flags := $(base_flags) $(arch_flag) $(CPPFLAGS) $(CXXFLAGS)

ifneq ($(new_flags)$(filter all test,$(building)),)
$(info compiler  $(compiler), $(or $(arch_flag),default target), into $(BUILD)/)
$(info threads   $(if $(one_thread),off ($(one_thread)),on))
$(info CUDA      $(cuda_state)$(if $(cuda_why), ($(cuda_why))))
endif

# Clocks that disagree (WSL, network drives) leave sources dated in the future, which would rebuild for ever.
$(shell touch $(BUILD)/now)
future := $(shell find tensor autograd nn train tests docs cuda -type f -newer $(BUILD)/now \
  -exec touch {} + -print 2>/dev/null)
ifneq ($(future),)
$(info note      dated in the future, set to now: $(future))
endif
endif # building

# In parallel by itself; a -j on the command line, or from a make above this one, wins.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
endif

# ---- Sources and rules -----------------------------------------------------------------------------------------------

# The library is all of tensor, autograd, nn and train but the programs' mains. Of tests/, test_*.cpp are the test
# cases, peer_*.cpp comparisons with other libraries, the rest of bench/ the parts of bench and figure_efficiency,
# golden_*.cpp those of golden, and all else is shared by the test cases.
mains := $(wildcard train/programs/*.cpp tests/bench/bench.cpp tests/bench/figure_efficiency.cpp tests/golden/golden.cpp)
library := $(sort $(wildcard tensor/*.cpp autograd/*.cpp nn/*.cpp) $(filter-out train/programs/%,$(wildcard train/*/*.cpp)))
test_sources := $(sort $(wildcard tests/*.cpp tests/*/*.cpp tests/*/*/*.cpp))
test_sources := $(filter-out $(mains) tests/fuzz/fuzz_main.cpp,$(test_sources))
test_cases := $(foreach f,$(test_sources),$(if $(filter test_%,$(notdir $(f))),$(f)))
peers := $(filter tests/bench/peer_%,$(test_sources))
bench_parts := $(filter-out $(peers),$(filter tests/bench/%,$(test_sources)))
golden_parts := $(filter tests/golden/golden_%,$(test_sources))
test_helpers := $(filter-out $(test_cases) $(golden_parts) tests/bench/%,$(test_sources))
examples := $(sort $(wildcard docs/example*.cpp))
# The engine is tensor/ and autograd/, where memory is handled and indices are computed; its tests need nothing else.
engine := $(filter tensor/% autograd/%,$(library)) \
  $(filter tests/test_main.cpp tests/tensor/% tests/autograd/%,$(test_helpers) $(test_cases))
# The emulation runs the kernels of cuda/ on the CPU. Its tests are those of kernels, of models and of itself, and need
# little of train/; what does not depend on the device is tested by the other builds.
ifeq ($(cuda_state),emu)
emulation := $(sort $(wildcard cuda/emulation/*.cpp))
library += $(emulation)
test_cases := tests/test_main.cpp $(filter tests/cuda/% tests/autograd/test_rounding.cpp,$(test_cases))
tested := $(filter-out train/%,$(library)) $(filter tests/autograd/op_cases% tests/autograd/reference%,$(test_helpers))
generation := $(BUILD)/obj/train/models/generation.o
else
test_cases := $(filter-out tests/cuda/test_emulation_%,$(test_cases))
tested := $(test_helpers) $(golden_parts)
endif

# A room is compiled as one unit, a file that includes all its sources: they share most of their headers, and reading
# these (the standard library, JSON) takes longer than what a source itself has to say. The kernels of tensor/ and the
# tests of the engine are long enough to be units of their own.
rooms := autograd nn $(filter-out %/programs %/configs,$(wildcard train/*)) $(wildcard tests/train/*)
objects = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(filter-out $(addsuffix /%.cpp,$(rooms)),$(1))) \
  $(foreach r,$(rooms),$(if $(filter $(r)/%.cpp,$(1)),$(BUILD)/obj/$(r).o))
room_objects := $(patsubst %,$(BUILD)/obj/%.o,$(rooms))
room_text = // All of $(1)/.$(foreach f,$(filter $(1)/%.cpp,$(library) $(test_sources)),$(newline)$(hash)include "$(f)")
cuda_objects := $(if $(filter on emu,$(cuda_state)),$(patsubst %.cu,$(BUILD)/obj/%.o,$(cuda_sources)))
programs := $(addprefix $(BUILD)/,$(notdir $(mains:.cpp=)))
tests := $(if $(test_cases),$(BUILD)/tests)
example_programs := $(patsubst %.cpp,$(BUILD)/%,$(examples))
peer_programs := $(addprefix $(BUILD)/,$(notdir $(peers:.cpp=)))
all_objects := $(call objects,$(library) $(mains) $(tested) $(test_cases) $(bench_parts) $(peers) $(examples) \
  tests/fuzz/fuzz_main.cpp)

run := $(if $(filter 1,$(V)),,@)
say = $(if $(run),@echo "  $(1)")
# As say, for a unit: with how many have been begun, of how many. `begun` gets a line for each.
say_unit = $(if $(run),@echo >>$(BUILD)/begun; echo "  $(1)  ($$(wc -l <$(BUILD)/begun | tr -d ' ')$(if $(units), of $(units)))")

$(BUILD)/obj/%.o: %.cpp $(BUILD)/flags | $(BUILD)/has_json
	@mkdir -p $(@D)
	$(call say_unit,CXX $<)
	$(run)$(CXX) $(flags) -MMD -MP -c $< -o $@

$(room_objects): %.o: %.cpp $(BUILD)/flags | $(BUILD)/has_json
	$(call say_unit,CXX $(patsubst $(BUILD)/obj/%.cpp,%/*.cpp,$<))
	$(run)$(CXX) $(flags) -Wno-subobject-linkage -MMD -MP -c $< -o $@

# The same .cu files for a GPU, or for the emulation.
$(BUILD)/obj/cuda/%.o: cuda/%.cu $(BUILD)/flags | $(BUILD)/has_json
	@mkdir -p $(@D)
ifeq ($(cuda_state),on)
	$(call say_unit,NVCC $<)
	$(run)$(nvcc) -ccbin '$(CXX)' -std=c++20 -O3 $(cuda_archs) -lineinfo -I. $(cuda_flags) $(CPPFLAGS) \
	  -Xcompiler -Wall,-Wextra -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@
else
	$(call say_unit,CXX $<)
	$(run)$(CXX) $(flags) -Wno-unknown-pragmas -MMD -MP -x c++ -c $< -o $@
endif
# A test that includes kernels.
$(call objects,tests/cuda/test_device_fused.cpp): flags += -Wno-unknown-pragmas
# The race detector must not see the emulation's own switching between threads.
$(call objects,$(emulation)): flags += $(if $(filter tsan,$(SAN)),-fno-sanitize=thread)

ifneq ($(building),)
$(call record,$(BUILD)/sources,$(library) $(cuda_objects) $(test_sources))
$(shell mkdir -p $(sort $(dir $(room_objects))))
$(foreach r,$(rooms),$(file >$(BUILD)/obj/$(r).new,$(call room_text,$(r))))
$(shell cd $(BUILD)/obj && for r in $(rooms); do cmp -s $$r.new $$r.cpp && rm $$r.new || mv $$r.new $$r.cpp; done)
# How many units are to be compiled: a dry run of this very make says it.
ifeq ($(dry_run)$(filter gpu-check fuzz,$(building)),)
units := $(shell $(MAKE) -n --no-print-directory $(MAKECMDGOALS) 2>/dev/null | grep -c '>>$(BUILD)/begun')
$(file >$(BUILD)/begun)
$(if $(filter-out 0 1,$(units)),$(info to compile $(units) units))
endif
endif

# The record of sources rebuilds the archive when a file was added or taken away.
$(BUILD)/libflexformer.a: $(call objects,$(library)) $(cuda_objects) $(BUILD)/sources
	$(call say,AR  $@)
	@rm -f $@
	$(run)ar rcs $@ $(filter %.o,$^)

link = $(run)$(CXX) $(flags) $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LDLIBS) $(libs) $(cuda_libs) -o $@
$(BUILD)/golden: $(call objects,$(golden_parts)) $(BUILD)/sources
$(BUILD)/bench $(BUILD)/figure_efficiency $(peer_programs): $(call objects,$(bench_parts)) $(BUILD)/sources
$(peer_programs): libs := -ldl
$(BUILD)/tests: $(call objects,$(test_cases) $(tested)) $(BUILD)/sources \
  $(if $(filter emu,$(cuda_state)),$(cuda_objects) $(generation),$(BUILD)/libflexformer.a)
	$(call say,LD  $@)
	$(link)
$(BUILD)/engine_tests: $(call objects,$(engine)) $(BUILD)/sources
	$(call say,LD  $@)
	$(link)
define program_rule
$(BUILD)/$(1): $(call objects,$(2)) $(BUILD)/libflexformer.a
	$$(call say,LD  $$@)
	@mkdir -p $$(@D)
	$$(link)
endef
$(foreach m,$(mains) $(peers),$(eval $(call program_rule,$(notdir $(m:.cpp=)),$(m))))
$(foreach e,$(examples),$(eval $(call program_rule,$(e:.cpp=),$(e))))
$(eval $(call program_rule,fuzz,tests/fuzz/fuzz_main.cpp tests/fuzz/fuzz_targets.cpp tests/fuzz/fuzz_texts.cpp))
$(BUILD)/fuzz: libs := -fsanitize=fuzzer

-include $(patsubst %.o,%.d,$(all_objects) $(cuda_objects) $(generation))

# ---- Headers from packages -------------------------------------------------------------------------------------------

# $(call need,HEADER,PACKAGE): looks for the header as the compiler does. If it is missing, Debian's package is
# installed where that needs no password, else the command to run is printed.
define need
@has() { printf '$(hash)if !__has_include(<%s>)\n$(hash)error\n$(hash)endif\n' $(1) | \
  $(CXX) $(flags) -E -x c++ - >/dev/null 2>&1; }; \
has || { if [ "$$(id -u)" = 0 ]; then as_root=env; else as_root='sudo -n env'; fi; \
  if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
    echo "  <$(1)> is missing: installing $(2)"; \
    apt() { $$as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$$@" </dev/null; }; \
    { apt install -y $(2) || { apt update && apt install -y $(2); }; } >$@.apt 2>&1 || tail -n 3 $@.apt >&2; \
  fi; }; \
has || { \
  if command -v dnf >/dev/null; then how='sudo dnf install -y json-devel doctest-devel'; \
  elif command -v pacman >/dev/null; then how='sudo pacman -S nlohmann-json doctest'; \
  elif command -v brew >/dev/null; then \
    how='brew install nlohmann-json doctest; export CPATH=$$(brew --prefix)/include'; \
  else how='sudo apt-get install -y nlohmann-json3-dev doctest-dev'; fi; \
  echo "error: <$(1)> is missing. Run: $$how" >&2; exit 1; }
@touch $@
endef
$(BUILD)/has_json: $(BUILD)/flags
	$(call need,nlohmann/json.hpp,nlohmann-json3-dev)
$(BUILD)/has_doctest: $(BUILD)/flags | $(BUILD)/has_json
	$(call need,doctest/doctest.h,doctest-dev)
$(call objects,$(test_cases) $(test_helpers) tests/fuzz/fuzz_main.cpp): | $(BUILD)/has_doctest
# Only tensor/ and autograd/ compute. What reads files and texts is fast enough with -O2, and what puts models, runs and
# reports together with -O1; together that saves a sixth of the time to compile.
ifeq ($(optimise),-O3)
$(call objects,$(filter train/%,$(library))): flags += -O2
$(call objects,$(filter nn/% train/models/% train/reports/%,$(library)) $(mains)): flags += -O1
endif
# Test cases are many lines that run once: to optimise them, or watch their own lines for undefined behaviour, takes longer
# than it saves. test_simd.cpp is left as the rest: it instantiates the vector functions, which must be one code everywhere.
ifeq ($(DEBUG),0)
$(call objects,$(filter-out tests/tensor/test_simd.cpp,$(test_cases))): \
  flags += $(if $(filter asan,$(SAN)),-O0 -fno-sanitize=undefined,-O1)
endif

# ---- Targets ---------------------------------------------------------------------------------------------------------

# Programs replace the shell (exec), so that Ctrl-C reaches them alone and they can save; nothing they write is a target
# that make would delete.
lra_tasks := $(patsubst train/configs/%.json,%,$(filter-out %-small.json,$(wildcard train/configs/lra-*.json)))
.PHONY: all test unit engine fuzz train-lm train-text generate predict compare kernels golden bench bench-peers \
  figure-efficiency gpu-check \
  help clean format data-listops data-pathfinder lra $(lra_tasks) $(fetched)

all: $(programs) ## builds all programs into build/release (the default)

# (The emulation's build has unit tests alone.)
test: $(if $(filter-out emu,$(cuda_state)),$(programs) $(example_programs)) $(tests)
test: ## builds and runs all tests; ends with "N passed, M failed"
	@BUILD=$(BUILD) SAN=$(SAN) UNIT=$(if $(filter emu,$(cuda_state)),tests) CXX='$(CXX)' exec bash tests/run_all.sh $(ARGS)

unit: $(tests) ## builds and runs the unit tests alone, without the programs and the shell tests
	@BUILD=$(BUILD) SAN=$(SAN) UNIT=tests exec bash tests/run_all.sh $(ARGS)

engine: $(BUILD)/engine_tests ## the same for the tests of tensor and autograd alone
	@BUILD=$(BUILD) SAN=$(SAN) UNIT=engine_tests exec bash tests/run_all.sh $(ARGS)

# The fuzzer is a flavour of its own, which only clang can build.
fuzz_compiler := $(if $(findstring clang,$(CXX)),$(CXX),clang++)
ifeq ($(SAN),fuzz)
fuzz: $(BUILD)/fuzz
	@exec bash tests/fuzz/run.sh $(BUILD)/fuzz $(ARGS)
else
fuzz: ## feeds damaged files to every reader (needs clang++); ARGS="--target=NAME --seconds=N"
	@command -v $(fuzz_compiler) >/dev/null || { \
	  echo "error: fuzzing needs clang++; on Debian: apt-get install clang" >&2; exit 1; }
	@$(MAKE) --no-print-directory fuzz SAN=fuzz CXX='$(fuzz_compiler)' CUDA=0 OMP=0
endif

train-lm: $(BUILD)/train_lm ## trains a language model, by default on the embedded corpus for about 90 s
	@exec $(BUILD)/train_lm $(ARGS)

train-text: $(BUILD)/train_classifier ## trains a text classifier, by default on the embedded task
	@exec $(BUILD)/train_classifier $(ARGS)

# The Long Range Arena: docs/experiments.md.
$(lra_tasks): lra-%: $(BUILD)/train_classifier
	@exec $(BUILD)/train_classifier --config=train/configs/lra-$*.json $(ARGS)

lra: $(BUILD)/lra $(BUILD)/train_classifier ## the Long Range Arena as one table; one of its tasks: make lra-listops
	@exec $(BUILD)/lra $(ARGS)

# Every program that has no target above or below: make import_model ARGS=...
plain_programs := $(filter-out generate predict compare kernels golden bench lra,$(notdir $(mains:.cpp=)))
.PHONY: $(plain_programs)
$(plain_programs): %: $(BUILD)/%
	@exec $(BUILD)/$@ $(ARGS)

generate: $(BUILD)/generate ## continues a text with the last run's language model
	@exec $(BUILD)/generate $(ARGS)

predict: $(BUILD)/predict ## labels the lines of standard input with the last run's classifier
	@exec $(BUILD)/predict $(ARGS)

compare: $(BUILD)/compare ## puts the runs RUNS="DIR DIR ..." side by side into runs/compare.html
	@exec $(BUILD)/compare $(RUNS) $(ARGS)

kernels: $(BUILD)/kernels ## adds what the attention of the run RUN=DIR has learned to its report.html
	@exec $(BUILD)/kernels $(if $(RUN),--run='$(RUN)') $(ARGS)

golden: $(BUILD)/golden ## compares with stored reference values (tests/golden, or GOLDEN=DIR)
	@exec $(BUILD)/golden '$(or $(GOLDEN),tests/golden)' $(ARGS)

bench: $(BUILD)/bench ## tables of speed and memory, JSON beside them
	@exec $(BUILD)/bench --out=$(BUILD)/bench.json $(ARGS)

figure-efficiency: $(BUILD)/figure_efficiency ## time and memory against the length of texts as a picture, with all its figures
	@exec $(BUILD)/figure_efficiency --out=$(BUILD)/figure-efficiency $(ARGS)

# Debian's PyTorch belongs to /usr/bin/python3, which need not be the first python3 of the PATH.
bench-peers: $(BUILD)/bench $(peer_programs) ## the same work in PyTorch and OpenBLAS, in turns with ours
	@exec $(or $(wildcard /usr/bin/python3),python3) tests/bench/bench_peers.py --build=$(BUILD) $(ARGS)

gpu-check: ## all checks that need a GPU, with a table (the recipe exits with 77 where there is none); or CUDA=emu
	@MAKE='$(MAKE)' CUDA=$(if $(filter emu,$(CUDA)),emu,1) exec bash tests/cuda/gpu_check.sh

$(fetched): data-%:
	@MIRROR='$(MIRROR)' exec bash train/datasets/fetch_data.sh $*

data-pathfinder: $(BUILD)/make_data ## Pathfinder of the Long Range Arena, 200,000 pictures, made here (ARGS=--rows=N)
	@exec $(BUILD)/make_data --kind=pathfinder $(ARGS)

data-listops: $(BUILD)/make_data ## ListOps of the Long Range Arena, 100,000 rows, made here
	@exec $(BUILD)/make_data --kind=listops $(ARGS)

help: ## this text
	@echo 'make TARGET [SETTING=value ...]'
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile
	@echo 'Every other program by its name: make distill ARGS=..., make import_model ARGS=... ($(plain_programs))'
	@echo 'Data sets, fetched into data/ (with their licence)'
	@awk '{ key = $$1; sub(/^[a-z0-9]* /, "") } key == "name" { name = $$0 } key == "what" { what = $$0 } \
	  key == "licence" { printf "  data-%-13s %s (%s)\n", name, what, $$0 }' train/datasets/data_sets.txt
	@echo 'Settings'
	@sed -n 's/^## /  /p' Makefile

# Trained models (runs/) and data sets (data/) stay.
clean: ## removes build/, nothing else
	$(if $(building),@:,rm -rf build)

format: ## formats all sources with clang-format
	@command -v clang-format >/dev/null || { \
	  echo "error: clang-format is missing; on Debian: apt-get install clang-format" >&2; exit 1; }
	clang-format -i $(sort $(wildcard $(foreach d,tensor autograd nn train/* tests tests/* tests/train/* docs \
	  cuda cuda/emulation,$(addprefix $(d)/,*.cpp *.h *.cu))))
