// The emulation refuses what a device would refuse to launch, and says what is wrong with a machine.
#include "tests/cuda/planted.h"

namespace flexformer::cuda {
namespace {

__global__ void large_static(float* y) {
  SHARED(float, much, [13000]);
  much[threadIdx.x] = 1;
  y[0] = much[0];
}
__global__ void fill_dynamic(float* y, int n) {
  DYN_SHARED(float, all);
  for (int i = threadIdx.x; i < n; i += blockDim.x) all[i] = float(i);
  __syncthreads();
  y[threadIdx.x] = all[n - 1];
}

TEST_CASE("emulation: wrong sizes of a launch are errors, as on a device") {
  Tensor y = empty(64);
  CHECK_SAYS(launch_kernel({1, 2048}, own_element, y.data()), "cuda: launch failed: invalid configuration");
  CHECK_SAYS(launch_kernel({0, 32}, own_element, y.data()), "invalid configuration");
  CHECK_SAYS(launch_kernel({dim3(1, 65536), 32}, own_element, y.data()), "test_emulation_launch.cpp:");
  CHECK_SAYS(launch_kernel({1, 1}, large_static, y.data()), "52000 bytes of static arrays, at most 49152");
  CHECK_SAYS(launch_kernel({1, 1}, fill_dynamic, y.data(), 1), "asks for no dynamic shared memory");
  CHECK_SAYS(emu::launch({1, 32, 60000, {"here", 1}}, fill_dynamic, y.data(), 2);
             check_cuda("launch", cudaGetLastError()), "invalid argument");
  launch_kernel({1, 32, 100000}, fill_dynamic, y.data(), 25000);  // launch_kernel asks for the large memory
  CHECK_EQ(y.to_vector()[31], 24999);
  CHECK_SAYS(launch_kernel({1, 32, 300000}, fill_dynamic, y.data(), 10), "more shared memory failed");
}

TEST_CASE("emulation: a grid that leaves elements out leaves NaN") {
  Tensor y = empty(100);
  launch_kernel({1, 1}, own_element, y.data());  // one thread for 100 elements
  CHECK_EQ(y.to_vector()[0], 0);
  CHECK(std::isnan(y.to_vector()[1]));
  launch_kernel({2, 32}, twice, y.data(), numbers(100).data(), Index(100));
  CHECK_EQ(y.to_vector()[99], 198);
}

TEST_CASE("emulation: what is captured runs when the graph is launched, with the arguments it had") {
  Tensor x = numbers(8), y = Tensor::zeros({8}, DType::f32, Device::cuda);
  const long before = emu::grids_run();
  const device::Graph graph([&] {
    launch_kernel({1, 8}, twice, y.data(), x.data(), Index(8));
    device::fill(x.data(), 0, sizeof(float) * 2);
  });
  CHECK_EQ(emu::grids_run(), before);
  for (const float wanted : {2.0f, 0.0f}) {
    graph.launch();
    CHECK_EQ(y.to_vector()[1], wanted);
    CHECK_EQ(y.to_vector()[7], 14);
  }
  CHECK_EQ(emu::grids_run(), before + 2);
  emu::set_deferred(true);
  graph.launch();
  CHECK_EQ(emu::grids_run(), before + 2);
  device::synchronize();
  CHECK_EQ(emu::grids_run(), before + 3);
  emu::set_deferred(false);
}

TEST_CASE("emulation: a capture that waits is lost, as on a device") {
  cudaGraph_t graph = nullptr;
  check_cuda("a capture", cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
  CHECK_SAYS(check_cuda("waiting", cudaStreamSynchronize(stream())), "not permitted when stream is capturing");
  CHECK_SAYS(check_cuda("the capture", cudaStreamEndCapture(stream(), &graph)), "a previous error during capture");
  device::synchronize();
}

TEST_CASE("emulation: a graph whose memory was given back is found") {
  Tensor y = numbers(8);
  const device::Graph graph([&] { launch_kernel({8, 1}, own_element, y.data()); });
  graph.launch();
  y = Tensor();
  memory::trim(Device::cuda);
  CHECK_SAYS(graph.launch(), "argument 0 (byte 0) of the kernel launched at tests/cuda/test_emulation_launch.cpp");
  CHECK_SAYS(graph.launch(), "lies in no live allocation");
}

TEST_CASE("what is wrong with a machine's GPU is said in one sentence") {
  emu::pretend(cudaErrorInsufficientDriver, 0);
  CHECK_EQ(find_trouble(), "there is no NVIDIA driver here");
  emu::pretend(cudaErrorInsufficientDriver, 12040);
  CHECK_EQ(find_trouble(), "the NVIDIA driver knows CUDA up to 12.4 only; update the driver");
  emu::pretend(cudaErrorNoDevice, 13000);
  CHECK_EQ(find_trouble(), "no GPU can be used (no CUDA-capable device is detected); is CUDA_VISIBLE_DEVICES set?");
  emu::pretend(cudaSuccess, 13000, cudaErrorNoKernelImageForDevice);
  CHECK_NE(find_trouble().find("holds no code for this GPU, rebuild on this machine with 'make CUDA=1'"),
           std::string::npos);
  emu::pretend(cudaSuccess, 13000);
  CHECK_EQ(find_trouble(), "");
}

}  // namespace
}  // namespace flexformer::cuda
