// HD marks a function that is compiled for the host and, by nvcc, for the GPU too.
#pragma once

#if defined(__CUDACC__)
#define HD __host__ __device__
#else
#define HD
#endif
