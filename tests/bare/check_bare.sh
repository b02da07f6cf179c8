#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The two commands of README.md where nothing is installed: in root file systems of Debian 12,
# Debian 13 and Ubuntu 24.04, made by debootstrap with git and ca-certificates only.  What is
# committed is cloned into it; "./bootstrap check" passes there with prompts, and "./bootstrap demo"
# writes its page.  A quarter of an hour of two cores for each.  Run by "make check-bare".
#
# usage: tests/bare/check_bare.sh [SUITE ...]          bookworm trixie noble
# Works in ${BARE_DIR:-/var/tmp/ckpt-bare}, where root file systems and packages stay.  Packages
# come from $BARE_DEBIAN and $BARE_UBUNTU, else from where apt gets its own, else from debootstrap's
# mirror; they are signed, by keys of $BARE_KEYRING, else of debian-archive-keyring and
# ubuntu-keyring.  Exits 77 without root, debootstrap, chroot, git or the right to mount.
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 1
dir=${BARE_DIR:-/var/tmp/ckpt-bare}
PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "check-bare: skipped: $*"
    exit 77
}

# Where apt gets the packages of a distribution, or nothing.
configured() {
    apt-get indextargets --format '$(REPO_URI)' "Origin: $1" "Label: $1" 2>/dev/null | head -n 1
}

# make_root SUITE: the archive of its root file system.
make_root() {
    rm -rf "${dir:?}/$1"
    case $1 in
    # an older debootstrap knows Ubuntu, and this suite by the script of another one
    noble)
        parts=main,universe
        set -- "$1" "$dir/$1" "${BARE_UBUNTU:-$(configured Ubuntu)}" \
            /usr/share/debootstrap/scripts/gutsy
        ;;
    *)
        parts=main
        set -- "$1" "$dir/$1" "${BARE_DEBIAN:-$(configured Debian)}"
        ;;
    esac
    debootstrap --variant=minbase --include=git,ca-certificates --components=$parts \
        --force-check-gpg ${BARE_KEYRING:+"--keyring=$BARE_KEYRING"} "$@" >"$dir/$1.log" 2>&1 ||
        return 1
    tar -C "$dir/$1" -cf "$dir/$1.tar.part" . && mv "$dir/$1.tar.part" "$dir/$1.tar"
}

# The commands, inside.
write_inside() {
    cat <<'INSIDE'
set -eu
cd /root/libckpt
./bootstrap check
./build/ckpt info | grep -E '^ *SentencePiece +yes' || { echo "prompts are off"; exit 1; }
# ranks as processes, in their own file of slow tests, where no file names localhost
[ ! -e /etc/hosts ]
make -C build check-chosen CHOSEN=tests/dist/test_tcp.sh \
    NEEDED="tests/dist/comm_ranks tests/dist/train_ranks"
./bootstrap demo
test -s build/demo-out/demo.html
INSIDE
}

# check_suite SUITE: in a mount namespace of its own, so that nothing stays mounted.
check_suite() {
    rm -rf "${dir:?}/$1" && mkdir -p "$dir/$1" "$dir/$1.debs" || return 1
    tar -C "$dir/$1" -xf "$dir/$1.tar" || return 1
    rm -f "$dir/$1/etc/hosts"
    cp /etc/resolv.conf "$dir/$1/etc/resolv.conf"
    git clone -q --no-hardlinks "$srcdir" "$dir/$1/root/libckpt" || return 1
    write_inside >"$dir/$1/root/inside"
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
        mount --bind "$1.debs" "$1/var/cache/apt/archives" &&
        exec chroot "$1" env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            sh /root/inside' sh "$dir/$1" >"$dir/$1.log" 2>&1 </dev/null
}

[ "$(id -u)" = 0 ] || skip "not root"
for command in debootstrap chroot unshare git tar; do
    command -v $command >/dev/null || skip "there is no $command"
done
git -C "$srcdir" rev-parse HEAD >/dev/null 2>&1 || skip "$srcdir is no git checkout"
unshare -m true 2>/dev/null || skip "mounts are not allowed here"
mkdir -p "$dir" || exit 1
status=0
for suite in ${*:-bookworm trixie noble}; do
    if ! [ -f "$dir/$suite.tar" ] && ! make_root "$suite"; then
        echo "check-bare: $suite: skipped: $(tail -n 1 "$dir/$suite.log")"
        [ $status = 1 ] || status=77
    elif check_suite "$suite"; then
        echo "check-bare: $suite: ok"
        rm -rf "${dir:?}/$suite"
    else
        echo "check-bare: $suite: failed; $dir/$suite.log ends with"
        tail -n 20 "$dir/$suite.log"
        status=1
    fi
done
exit $status
