//! Names of hosts in a static program (setup/dist).
//!
//! glibc itself looks names up in files and by DNS. Other sources of /etc/nsswitch.conf load the system's libraries
//! with the system's glibc, which aborts a program with another version inside. So a static program uses files and DNS
//! only.

/// Leaves out the sources that need a library. Called once, before any name is looked up.
#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
pub fn ask_files_and_dns_alone() {
    unsafe extern "C" {
        // nss.h; the libc crate does not declare it.
        fn __nss_configure_lookup(database: *const libc::c_char, sources: *const libc::c_char) -> libc::c_int;
    }
    for (database, sources) in [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")] {
        // SAFETY: glibc defines it with this type; both are strings with a zero at their end, which it copies or only
        // reads. There is no other thread yet. If there is no memory for it, the sources of /etc/nsswitch.conf stay.
        unsafe { __nss_configure_lookup(database.as_ptr(), sources.as_ptr()) };
    }
}

/// A program with the system's glibc looks names up as every other one.
#[cfg(not(all(target_feature = "crt-static", target_env = "gnu")))]
pub fn ask_files_and_dns_alone() {}
