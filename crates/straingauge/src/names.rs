//! Resolves host names in a static program (setup/dist).
//!
//! glibc itself supports files and DNS. Other sources in /etc/nsswitch.conf load the system's libraries with the
//! system's glibc, which aborts a program that contains another version. So a static program uses files and DNS only.

/// Disables sources of names that need a library. Must be called once, before any name is resolved.
#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
pub fn ask_files_and_dns_alone() {
    unsafe extern "C" {
        // Declared in nss.h, but not in the libc crate.
        fn __nss_configure_lookup(database: *const libc::c_char, sources: *const libc::c_char) -> libc::c_int;
    }
    for (database, sources) in [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")] {
        // SAFETY: glibc defines it with this type; both arguments are zero-terminated strings, which it copies or
        // only reads. There is no other thread yet. Without memory it leaves the sources of /etc/nsswitch.conf
        // unchanged.
        unsafe { __nss_configure_lookup(database.as_ptr(), sources.as_ptr()) };
    }
}

/// Does nothing: a program with the system's glibc resolves names as usual.
#[cfg(not(all(target_feature = "crt-static", target_env = "gnu")))]
pub fn ask_files_and_dns_alone() {}
