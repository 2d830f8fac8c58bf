use crate::cli::{ClientOptions, LoadOptions, TlsWord};
use crate::failure::{refuse_if, wrong_usage};
use crate::input::read_file;
use crate::url::Target;
use anyhow::Result;
use record::{ClientPlan, FixedBandwidth, TlsPlan};

const MAX_CA_BYTES: u64 = 8 << 20;

pub fn client_plan(options: &ClientOptions, load: &LoadOptions, target: &Target) -> Result<ClientPlan> {
    let bandwidth = match (options.asked_bandwidth, options.demanded_bandwidth) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(wrong_usage("demanded-bandwidth of [clients] needs --asked-bandwidth"));
        }
        (Some(asked), demanded) => {
            let demanded = demanded.map_or(asked.0 * crate::defaults::DEMANDED_SHARE.0, |demanded| demanded.0);
            Some(fixed_bandwidth(asked.0, demanded)?)
        }
    };
    let read_bytes_per_sec = match options.read_rate {
        Some(rate) if rate.0 == 0 => return Err(wrong_usage("--read-rate 0 would read nothing: give at least 1")),
        rate => rate.map_or(0, |rate| rate.0),
    };
    refuse_if(
        read_bytes_per_sec > 0 && bandwidth.is_some(),
        "--read-rate and --asked-bandwidth both set a client's pace: leave one out",
    )?;
    refuse_if(
        options.close_first.is_some() && load.requests_per_connection.is_none(),
        "close-first of [clients] applies to connections that end: add --requests-per-connection, e.g. 1",
    )?;
    let (times_parts, tls) = (options.parts, tls_plan(options, target)?);
    Ok(ClientPlan { read_bytes_per_sec, bandwidth, close_first: options.close_first, times_parts, tls })
}

/// Checks bandwidths: both are above 0, and the demanded one is at most the asked one.
pub fn fixed_bandwidth(asked_bits_per_sec: f64, demanded_bits_per_sec: f64) -> Result<FixedBandwidth> {
    refuse_if(
        asked_bits_per_sec < 8.0 || demanded_bits_per_sec < 1.0,
        "--asked-bandwidth needs at least 8 bit/s, demanded-bandwidth of [clients] at least 1",
    )?;
    refuse_if(
        demanded_bits_per_sec > asked_bits_per_sec,
        format!(
            "demanded-bandwidth {demanded_bits_per_sec} of [clients] is more than --asked-bandwidth \
             {asked_bits_per_sec}: no connection could conform"
        ),
    )?;
    Ok(FixedBandwidth { asked_bits_per_sec, demanded_bits_per_sec })
}

fn tls_plan(options: &ClientOptions, target: &Target) -> Result<Option<TlsPlan>> {
    if !target.is_tls {
        refuse_if(!options.tls.is_empty(), "--tls applies to TLS: write the URL with https or rediss")?;
        return Ok(None);
    }
    let is_insecure = options.tls.contains(&TlsWord::Insecure);
    let mut authorities =
        options.tls.iter().filter_map(|word| if let TlsWord::Ca(file) = word { Some(file) } else { None });
    let ca = authorities.next();
    refuse_if(authorities.next().is_some(), "--tls ca= was given twice: put all authorities into one file")?;
    refuse_if(
        is_insecure && ca.is_some(),
        "--tls insecure checks no certificate, so --tls ca= has no effect: leave one out",
    )?;
    Ok(Some(TlsPlan {
        server_name: target.name.clone(),
        has_resumption: !options.tls.contains(&TlsWord::NoResumption),
        is_insecure,
        ca_pem: ca.map(|path| read_file(path, MAX_CA_BYTES, "--tls ca=FILE")).transpose()?.unwrap_or_default(),
        ca_file: ca.map(|path| path.display().to_string()),
    }))
}
