# Finds missing Debian packages and installs them. Sourced by setup/install.
#
# Setup ends with the line to run if a wanted program is missing; it reports a missing wished one and continues. It
# looks for programs instead of packages, because a program may be installed in another way.

wanted= wished=
PATH=$PATH:/usr/sbin:/sbin

say() { echo "setup: $*"; }
give_up() { echo "setup: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }

want_program() { has "$1" || wanted="$wanted $2"; }
want_file() { [ -e "$1" ] || wanted="$wanted $2"; }
wish_file() { [ -e "$1" ] || wished="$wished $2"; }
# Wishes a C header that only tests need.
wish_header() {
  if has cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; then return; fi
  wished="$wished $2"
}
wish_program() { has "$1" || wished="$wished $2"; }

# A C header. The compiler, if there is one, is used to find it.
want_header() {
  if has cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; then return; fi
  wanted="$wanted $2"
}

# Debian has the module for virtual environments in a separate package.
wish_venv() {
  if has python3 && python3 -c 'import ensurepip' 2>/dev/null; then return; fi
  wished="$wished python3-venv"
}

# CPython's tests of select and poll run with scalable-select. Debian has them in a separate package, whose name has
# the version of Debian's python3, so python3 is installed first.
wish_python_tests() {
  for python in /usr/bin/python3 python3; do
    if $python -c 'import test.test_select, test.libregrtest' >/dev/null 2>&1; then return; fi
  done
  version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 0
  wished="$wished libpython$version-testsuite"
}

# A headless browser and a font for it, for the test that looks at the report.
wish_browser() {
  for browser in chromium chromium-headless-shell google-chrome google-chrome-stable; do
    if has "$browser"; then return; fi
  done
  if has apt-cache && [ -z "$(candidate chromium-headless-shell)" ] && [ -n "$(candidate chromium)" ]; then
    wished="$wished chromium fonts-dejavu-core"
  else
    wished="$wished chromium-headless-shell fonts-dejavu-core"
  fi
}

# The version of a package that apt would install; empty without one.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([^(].*\)/\1/p'; }

lists_are_fresh=
refresh_lists() {
  [ -z "$lists_are_fresh" ] || return 0
  say "reading the package lists (apt-get update)"
  apt_log=$(mktemp)
  apt-get update -q >"$apt_log" 2>&1 || { cat "$apt_log" >&2; rm -f "$apt_log"; give_up "apt-get update failed"; }
  rm -f "$apt_log"
  lists_are_fresh=yes
}

# The testbed needs servers that do not run on their own. They are not started while dpkg configures them
# (policy-rc.d, unless the machine has its own), and newly installed ones are not started at boot either.
policy=/usr/sbin/policy-rc.d
policy_mark='# While straingauge is set up, by process '
laid_policy=
lay_policy() {
  # A file that a killed setup left.
  owner=$(sed -n "s/^$policy_mark//p" "$policy" 2>/dev/null) || owner=
  [ -z "$owner" ] || kill -0 "$owner" 2>/dev/null || rm -f "$policy"
  [ ! -e "$policy" ] || return 0
  # noclobber keeps a file that another process makes at the same moment.
  if (set -C; printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark$$" > "$policy") 2>/dev/null; then
    laid_policy=yes
    trap lift_policy EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    chmod 755 "$policy"
  fi
}
lift_policy() {
  [ -z "$laid_policy" ] || rm -f "$policy"
  laid_policy=
}

keep_from_boot() {
  for service in "$@"; do
    case $service in
      nginx|lighttpd|haproxy|redis-server|memcached) ;;
      openssh-server) service=ssh ;;
      *) continue ;;
    esac
    ! has deb-systemd-helper || deb-systemd-helper disable "$service.service" >/dev/null 2>&1 || true
    ! has update-rc.d || update-rc.d "$service" disable >/dev/null 2>&1 || true
    say "$service is for the testbed: not started, not at boot either (systemctl enable $service changes that)"
  done
}

apt_install() {
  lay_policy
  apt_log=$(mktemp)
  status=0
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >"$apt_log" 2>&1 </dev/null || status=$?
  [ $status = 0 ] || tail -15 "$apt_log" >&2
  rm -f "$apt_log"
  lift_policy
  [ $status != 0 ] || keep_from_boot "$@"
  return $status
}

install_wanted() {
  [ -n "$wanted" ] || return 0
  line="apt-get install --no-install-recommends$wanted"
  has apt-get || give_up "missing:$wanted (Debian's names); install them with this system's package tool, then run this again"
  is_root || give_up "missing:$wanted; run as root: $line"
  refresh_lists
  say "installing$wanted"
  # shellcheck disable=SC2086 # a list of package names
  apt_install $wanted || give_up "could not install; see above, then try: $line"
}

install_wished() {
  [ -n "$wished" ] || return 0
  line="apt-get install --no-install-recommends$wished"
  if ! has apt-get; then
    say "without$wished (Debian's names) some tests do not run and say so"
    return 0
  fi
  if ! is_root; then
    say "without$wished some tests do not run and say so; as root: $line"
    return 0
  fi
  refresh_lists
  say "installing$wished"
  # shellcheck disable=SC2086 # a list of package names
  if apt_install $wished; then return 0; fi
  for package in $wished; do
    apt_install "$package" || say "could not install $package: the tests that need it do not run and say so"
  done
}
