#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octavo {
namespace {

#if defined(__x86_64__)
// Asked of CPUID directly: not every compiler that we build with knows "f16c" in __builtin_cpu_supports.
bool has_f16c() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// The features of the flags in CMakeLists.txt. __builtin_cpu_supports also asks whether the
// operating system saves the wide registers.
bool has_avx2_features() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
           has_f16c();
}

bool has_avx512_features() {
    return has_avx2_features() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

bool cpu_supports(const std::string& isa) {
    if (isa == "baseline") return true;
#if defined(__x86_64__)
    if (isa == "avx2") return has_avx2_features();
    if (isa == "avx512") return has_avx512_features();
#endif
    return false;
}

}  // namespace octavo
