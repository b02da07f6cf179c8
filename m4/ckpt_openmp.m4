# SPDX-License-Identifier: Apache-2.0

# CKPT_TEAM
# Whether the threads of loops can be ours (runtime/memory/device/team.c): the names of what the
# compiler calls are ours once team_calls.h is included, and nothing else is called.  Defines
# CKPT_OWN_TEAM.
AC_DEFUN([CKPT_TEAM], [
  AC_CACHE_CHECK([whether loops of $CC can have threads of ours], [ckpt_cv_own_team], [
    ckpt_cv_own_team=no
    ckpt_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -fopenmp -include $srcdir/runtime/memory/device/team_calls.h"
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
        #include <linux/futex.h>
        #include <sys/syscall.h>
        #include <omp.h>
        static unsigned n;
        void team_run(void (*body)(void *), void *data, unsigned threads, unsigned flags)
        {
            n += threads + flags + SYS_futex + FUTEX_WAIT_PRIVATE;
            body(data);
        }
        int team_number(void) { return 0; }
        int team_threads(void) { return 1; }
        int main(int argc, char **argv)
        {
            double sum = omp_get_thread_num();
            #pragma omp parallel for schedule(static) num_threads(argc) if (argc > 1)
            for (int i = 0; i < argc; i++)
                argv[i] = 0;
            #pragma omp parallel for schedule(static, 64) collapse(2) reduction(+ : sum)
            for (int i = 0; i < argc; i++)
                for (int j = 0; j < argc; j++)
                    sum += i * j;
            #pragma omp parallel
            __atomic_fetch_add(&n, 1, __ATOMIC_RELAXED);
            return sum > n;
        }]])],
      [AS_IF([$CC $LDFLAGS conftest.$ac_objext -o conftest-team$ac_exeext \
                >&AS_MESSAGE_LOG_FD 2>&1], [ckpt_cv_own_team=yes])])
    rm -f conftest-team$ac_exeext
    CFLAGS=$ckpt_save_CFLAGS])
  AS_IF([test "$ckpt_cv_own_team" = yes],
    [AC_DEFINE([CKPT_OWN_TEAM], [1], [Define if loops of OpenMP have threads of ours.])])
])

# CKPT_OPENMP
# --with-openmp.  Sets OPENMP_CFLAGS, for everything: -fopenmp, or what gives "omp simd" without a
# run-time library; and TEAM_CPPFLAGS, for the library.  ThreadSanitizer does not see the locks
# inside OpenMP's own library, so it turns that off.
AC_DEFUN([CKPT_OPENMP], [
  CKPT_WITH([openmp], [several threads per kernel])
  have_openmp=no
  found_openmp=no
  AS_IF([test "$with_openmp" != no], [
    AC_CACHE_CHECK([whether $CC compiles and links OpenMP], [ckpt_cv_openmp], [
      ckpt_save_CFLAGS=$CFLAGS
      CFLAGS="$CFLAGS -fopenmp"
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <omp.h>]],
          [[return omp_get_max_threads() < 1;]])],
        [ckpt_cv_openmp=yes], [ckpt_cv_openmp=no])
      CFLAGS=$ckpt_save_CFLAGS])
    have_openmp=$ckpt_cv_openmp
    found_openmp=$have_openmp
    AS_IF([test "$have_openmp" = no],
      [found_openmp="no (kernels use one thread; clang needs libomp-dev)"
       AS_IF([test "$with_openmp" = yes],
         [AC_MSG_ERROR([--with-openmp was asked for, but $CC cannot link it])])],
      [CKPT_TEAM
       AS_IF([test "$ckpt_cv_own_team" = yes],
         [found_openmp="yes (threads of our own, which sleep)"])])
    AS_CASE([$have_openmp$ckpt_cv_own_team,$enable_sanitizers,], [yesno,*thread,*],
      [AS_IF([test "$with_openmp" = yes],
         [AC_MSG_ERROR([--with-openmp with $CC and --enable-sanitizers=thread exclude each other])])
       have_openmp=no
       found_openmp="no (ThreadSanitizer)"])
  ])
  OPENMP_CFLAGS=
  TEAM_CPPFLAGS=
  AS_IF([test "$have_openmp$ckpt_cv_own_team" = yesno], [OPENMP_CFLAGS=-fopenmp],
    [CKPT_CC_FLAG([-fopenmp-simd], [OPENMP_CFLAGS])
     CKPT_CC_FLAG([-Wno-unknown-pragmas], [OPENMP_CFLAGS])])
  AS_IF([test "$have_openmp$ckpt_cv_own_team" = yesyes],
    [TEAM_CPPFLAGS='-fopenmp -include $(srcdir)/runtime/memory/device/team_calls.h'])
  AC_SUBST([OPENMP_CFLAGS])
  AC_SUBST([TEAM_CPPFLAGS])
])
