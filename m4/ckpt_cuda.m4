dnl SPDX-License-Identifier: Apache-2.0
# CKPT_CUDA
# --with-cuda=yes|no|auto|DIR and --with-cuda-arch=LIST.  Looks for the toolkit (nvcc, the runtime,
# cuBLASLt and cuDNN) in DIR or $CUDA_HOME, else by nvcc in PATH and the default prefix.  Sets
# have_cuda and found_cuda, CUDA_CFLAGS, CUDA_LIBS and NVCC_FLAGS, the automake condition HAVE_CUDA
# and the macro of that name; CUDA_DIR is the prefix of the toolkit.
AC_DEFUN([CKPT_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=yes|no|auto|DIR],
      [build the CUDA device with the toolkit found, or with that in DIR @<:@auto@:>@])],
    [], [with_cuda=auto])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST],
      [compute capabilities to build kernels for, as 80,90; the last also as PTX, which newer
       cards translate @<:@80,90@:>@])],
    [], [with_cuda_arch=80,90])
  AC_ARG_VAR([CUDA_HOME], [prefix of the CUDA toolkit])
  AC_ARG_VAR([NVCC], [the CUDA compiler])
  have_cuda=no
  found_cuda=no
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda], [yes|auto], [ckpt_cuda_dir=$CUDA_HOME], [ckpt_cuda_dir=$with_cuda])
    AS_IF([test -n "$ckpt_cuda_dir"],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$ckpt_cuda_dir/bin])],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])])
    ckpt_cuda_missing=
    AS_IF([test -z "$NVCC"], [ckpt_cuda_missing=nvcc], [_CKPT_CUDA_TOOLKIT])
    AS_IF([test -z "$ckpt_cuda_missing"],
      [have_cuda=yes
       found_cuda="yes, nvcc $ckpt_nvcc_version, for $with_cuda_arch"
       AC_DEFINE([HAVE_CUDA], [1], [The CUDA device is built.])],
      [AS_IF([test "x$with_cuda" != xauto],
         [AC_MSG_ERROR([--with-cuda=$with_cuda was asked for, but $ckpt_cuda_missing is missing])],
         [found_cuda="no ($ckpt_cuda_missing not found)"])])
  ])
  AM_CONDITIONAL([HAVE_CUDA], [test "$have_cuda" = yes])
  AC_SUBST([CUDA_CFLAGS])
  AC_SUBST([CUDA_DIR], [$ckpt_cuda_dir])
  AC_SUBST([CUDA_LIBS])
  AC_SUBST([NVCC_FLAGS])
])

# Headers, libraries and flags of the toolkit that $NVCC belongs to; what is not there goes into
# ckpt_cuda_missing.
AC_DEFUN([_CKPT_CUDA_TOOLKIT], [
  ckpt_nvcc_version=`"$NVCC" --version 2>/dev/null | sed -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
  AS_IF([test -z "$ckpt_cuda_dir"],
    [ckpt_cuda_dir=`"$NVCC" --dryrun -c x.cu 2>&1 | sed -n 's/^#\$ TOP=//p'`])
  AS_IF([test -n "$ckpt_cuda_dir"], [], [ckpt_cuda_dir=/usr/local/cuda])
  CUDA_CFLAGS="-isystem $ckpt_cuda_dir/include"
  CUDA_LIBS=
  for ckpt_lib in "$ckpt_cuda_dir/lib64" "$ckpt_cuda_dir/lib"; do
    AS_IF([test -d "$ckpt_lib"], [CUDA_LIBS="$CUDA_LIBS -L$ckpt_lib"])
  done
  ckpt_save_CPPFLAGS=$CPPFLAGS
  ckpt_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
  LIBS="$CUDA_LIBS $LIBS"
  AC_CHECK_HEADER([cuda_runtime_api.h], [], [ckpt_cuda_missing=cuda_runtime_api.h])
  AC_CHECK_HEADER([cublasLt.h], [], [ckpt_cuda_missing=cublasLt.h])
  AC_CHECK_HEADER([cudnn.h], [], [ckpt_cuda_missing=cudnn.h])
  AC_CHECK_LIB([cudart], [cudaGetDeviceCount], [], [ckpt_cuda_missing=libcudart])
  AC_CHECK_LIB([cublasLt], [cublasLtCreate], [], [ckpt_cuda_missing=libcublasLt])
  AC_CHECK_LIB([cudnn], [cudnnBackendCreateDescriptor], [], [ckpt_cuda_missing=libcudnn])
  LIBS=$ckpt_save_LIBS
  CPPFLAGS=$ckpt_save_CPPFLAGS
  CUDA_LIBS="$CUDA_LIBS -lcudnn -lcublasLt -lcudart -ldl"
  NVCC_FLAGS=
  for ckpt_arch in `AS_ECHO(["$with_cuda_arch"]) | tr ',' ' '`; do
    AS_CASE([$ckpt_arch], [8@<:@0-9@:>@|9@<:@0-9@:>@|1@<:@0-9@:>@@<:@0-9@:>@], [],
      [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: $ckpt_arch is below 80, or no number])])
    NVCC_FLAGS="$NVCC_FLAGS -gencode=arch=compute_$ckpt_arch,code=sm_$ckpt_arch"
  done
  NVCC_FLAGS="$NVCC_FLAGS -gencode=arch=compute_$ckpt_arch,code=compute_$ckpt_arch"
])
