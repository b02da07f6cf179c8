# CKPT_CUDA
# --with-cuda=yes|no|auto|DIR.  Looks for nvcc in DIR or $CUDA_HOME, else in PATH and the default
# prefix.  This version has no CUDA kernels: configure says what it found and goes no further.
AC_DEFUN([CKPT_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=yes|no|auto|DIR],
      [find the CUDA toolkit; only reported, no kernel uses it yet @<:@auto@:>@])],
    [], [with_cuda=auto])
  AC_ARG_VAR([CUDA_HOME], [prefix of the CUDA toolkit])
  AC_ARG_VAR([NVCC], [the CUDA compiler])
  found_cuda=no
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda], [yes|auto], [ckpt_cuda_dir=$CUDA_HOME], [ckpt_cuda_dir=$with_cuda])
    AS_IF([test -n "$ckpt_cuda_dir"],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$ckpt_cuda_dir/bin])],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])])
    AS_IF([test -n "$NVCC"],
      [ckpt_nvcc_version=`"$NVCC" --version 2>/dev/null |
         sed -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
       found_cuda="nvcc $ckpt_nvcc_version found; this version has no CUDA kernels"],
      [AS_IF([test "x$with_cuda" != xauto],
         [AC_MSG_ERROR([--with-cuda=$with_cuda was asked for, but nvcc is missing])],
         [found_cuda="no (nvcc not found)"])])
  ])
])
