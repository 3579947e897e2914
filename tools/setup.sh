#!/usr/bin/env bash
# Installs what Paceline needs: Debian packages, and .venv with wheels that carry libraries and
# data. Versions are those of tools/versions.env. Safe to repeat: what is there is left alone.
#   tools/setup.sh            what the program needs to build and the quickstart to run
#   tools/setup.sh --checks   also what the tests and checks need
source "$(dirname "$0")/env.sh"
source tools/versions.env

packages=$PACELINE_APT
python_checks=""
case "${1:-}" in
  "") ;;
  --checks)
    packages+=" $PACELINE_APT_CHECKS"
    python_checks=$PACELINE_PYTHON_CHECKS
    ;;
  *) die "usage: tools/setup.sh [--checks]" ;;
esac
readonly venv=.venv
readonly stamp=$venv/.paceline-setup
readonly checks_stamp=$venv/.paceline-setup-checks
readonly log=build/logs/setup.log

missing_packages() {
  local package
  for package in $packages; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      echo "$package"
  done
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@" -o Dpkg::Use-Pty=0
}

install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "This is not a Debian system, so no packages were installed. Paceline is built and tested"
    echo "on Debian 12; elsewhere provide the counterparts of: $packages"
    return
  fi
  local missing
  missing=$(missing_packages | xargs)
  [ -n "$missing" ] || return 0
  echo "Installing Debian packages: $missing"
  if [ "$(id -u)" -ne 0 ] && ! { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }; then
    die "these packages are missing and installing them needs root. As root, run
  apt-get update && apt-get install -y $missing
and then this command again."
  fi
  # Known package lists may do; they are fetched when they do not.
  # shellcheck disable=SC2086
  if ! apt_install install -y --no-install-recommends $missing >"$log" 2>&1; then
    apt_install update >>"$log" 2>&1 || true
    # shellcheck disable=SC2086
    apt_install install -y --no-install-recommends $missing >>"$log" 2>&1 || {
      tail -n 20 "$log" >&2
      die "apt-get could not install: $missing
Check that this machine reaches a Debian 12 package mirror (apt-get update), then run this command again."
    }
  fi
}

create_venv() {
  [ -x $venv/bin/python ] && $venv/bin/python -m pip --version >/dev/null 2>&1 && return
  local python
  for python in python3 /usr/bin/python3; do
    command -v "$python" >/dev/null || continue
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || continue
    rm -rf $venv
    "$python" -m venv $venv >>"$log" 2>&1 && return
  done
  rm -rf $venv
  tail -n 5 "$log" >&2
  die "no usable Python environment. Paceline needs Python >= 3.10 with its venv module (Debian: apt-get install python3 python3-venv)."
}

pip_install() {
  local args=$1 wheel=$2
  # shellcheck disable=SC2086
  $venv/bin/python -m pip install -q --disable-pip-version-check $args "$wheel" >>"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "pip could not install $wheel into $venv.
Check that this machine reaches a Python package index ($venv/bin/python -m pip download --no-deps $wheel), then run this command again."
  }
}

# The libraries and data that the wheels are installed for.
wheels_present() {
  local site
  site=$(echo $venv/lib/python3*/site-packages)
  [ -e "$site/pyarrow/libarrow.so.$PACELINE_ARROW_SO" ] &&
    [ -e "$site/pyarrow/libparquet.so.$PACELINE_ARROW_SO" ] &&
    [ -d "$site/cutlass_library/source/include/cute" ] &&
    [ -e "$site/recbole/dataset_example/ml-100k/ml-100k.inter" ]
}

install_wheels() {
  local wanted="$PACELINE_PYARROW $PACELINE_CUTLASS $PACELINE_RECBOLE"
  if [ -e $stamp ] && [ "$(cat $stamp)" = "$wanted" ] && wheels_present; then return; fi
  create_venv
  echo "Installing into $venv: $wanted"
  pip_install "--only-binary=:all:" "$PACELINE_PYARROW"
  # Only the files are used, so what these would import is not installed.
  pip_install "--no-deps --only-binary=:all:" "$PACELINE_CUTLASS"
  pip_install "--no-deps" "$PACELINE_RECBOLE"
  wheels_present || die "the wheels in $venv lack files that Paceline uses (Arrow .so.$PACELINE_ARROW_SO, CUTLASS headers or MovieLens-100K). Remove $venv and run this command again."
  echo "$wanted" >$stamp
}

# What the tests read our files with.
install_python_checks() {
  [ -n "$python_checks" ] || return 0
  if [ -e $checks_stamp ] && [ "$(cat $checks_stamp)" = "$python_checks" ]; then return; fi
  echo "Installing into $venv: $python_checks"
  local package
  for package in $python_checks; do
    pip_install "--no-deps --only-binary=:all:" "$package"
  done
  echo "$python_checks" >$checks_stamp
}

mkdir -p "$(dirname "$log")"
install_packages
install_wheels
install_python_checks
