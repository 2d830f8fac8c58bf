# A stock kernel for QEMU guests, for tests of features that this machine's kernel may refuse (netem, fentry, an older
# kernel). It is unpacked under target/ and never installed, so the boot loader, initramfs and modules of this machine
# stay unchanged. Sourced by setup/install after packages.sh.

guest_kernel=target/guest-kernel

# Debian's kernel for virtual machines. It has a fifth of the full one's size, with BTF, veth, netem and TUN.
wish_guest_kernel() {
  if [ "$(uname -m)" != x86_64 ]; then
    say "the guests of tests are x86-64 machines: those tests do not run here and say so"
    return 0
  fi
  if ls "$guest_kernel"/boot/vmlinuz-* >/dev/null 2>&1; then return 0; fi
  if ! has apt-get || ! has dpkg-deb; then
    say "without Debian's kernel package, unpacked, tests in guests do not run and say so (STRAINGAUGE_GUEST_KERNEL names the folder)"
    return 0
  fi
  [ -n "$(candidate linux-image-cloud-amd64)" ] || { ! is_root || refresh_lists; }
  package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^  Depends: \(linux-image-.*\)/\1/p' | head -1)
  say "unpacking ${package:-linux-image-cloud-amd64} for the guests of tests (not installed)"
  fetched=$guest_kernel.part
  rm -rf "$fetched"
  mkdir -p "$fetched"
  # apt downloads as a separate user if the directory permits it, otherwise as root with a harmless notice.
  if [ -n "$package" ] && (cd "$fetched" && apt-get -o APT::Sandbox::User=root download -q "$package") >"$fetched/log" 2>&1 &&
    dpkg-deb -x "$fetched"/linux-image-*.deb "$fetched/kernel"; then
    rm -rf "$guest_kernel"
    mv "$fetched/kernel" "$guest_kernel"
  else
    say "could not fetch a kernel package: tests in guests do not run and say so"
  fi
  rm -rf "$fetched"
}
