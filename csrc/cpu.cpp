#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
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

bool has_tiles() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned kBFloat16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25, kAll = kBFloat16 | kTile | kInt8;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAll) == kAll;
}

// A process must ask for the registers of AMX before it may use them; Linux may refuse.
bool may_use_tiles() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}
#endif

}  // namespace

bool cpu_supports(const std::string& isa) {
    if (isa == "baseline") return true;
#if defined(__x86_64__)
    if (isa == "avx2") return has_avx2_features();
    if (isa == "avx512") return has_avx512_features();
    if (isa == "amx") return has_avx512_features() && has_tiles() && may_use_tiles();
#elif defined(__aarch64__) && defined(__linux__)
    if (isa == "neon_dotprod") return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
    return false;
}

}  // namespace octavo
