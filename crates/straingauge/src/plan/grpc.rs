//! Makes HTTP/2 requests for gRPC calls: path, header fields and message.

use super::MAX_BODY_BYTES;
use crate::cli::Options;
use crate::failure::{refuse_if, refuse_typed, wrong_usage};
use crate::input::read_file;
use anyhow::Result;
use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use record::LoadPlan;
use record::protocol::Protocol;
use record::scenario::RequestTarget;
use std::path::Path;

/// Splits `METHOD` or `METHOD@FILE` into the method's name, without the leading slash, and the file that describes
/// it.
pub fn method(typed: &str) -> Result<(String, Option<&Path>)> {
    let (method, file) = typed.split_once('@').map_or((typed, None), |(method, file)| (method, Some(Path::new(file))));
    let method = method.trim_start_matches('/');
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte));
    match method.split_once('/') {
        Some((service, name)) if is_word(service) && is_word(name) => Ok((method.into(), file)),
        _ => Err(wrong_usage(format!(
            "--grpc '{}' is not a method: write it as package.Service/Method",
            typed.escape_debug()
        ))),
    }
}

/// Turns the requests of a gRPC plan into calls. Its body so far is the message.
pub(super) fn adapt(plan: &mut LoadPlan, options: &Options) -> Result<()> {
    let Protocol::Grpc(grpc) = &plan.protocol else { return Ok(()) };
    let typed = [
        (options.load.method.is_some(), "--method"),
        (options.load.urls.is_some(), "--urls"),
        (options.workload.mix.is_some(), "--mix"),
        (options.workload.classes.is_some(), "classes of [workload]"),
        (options.workload.trace.is_some(), "--trace"),
        (options.protocol.http2, "--http2"),
    ];
    refuse_typed(&typed, |option| {
        format!(
            "{option} does not apply to gRPC, whose calls are POST over HTTP/2: leave it \
        out"
        )
    })?;
    let path = format!("/{}", grpc.method);
    if let Some(typed) = &options.protocol.grpc
        && let (_, Some(file)) = method(typed)?
    {
        plan.body = encoded(input(file, &grpc.method)?, &plan.body)?;
    }
    // The flag "not compressed", then the length.
    let mut framed = vec![0];
    framed.extend_from_slice(&(plan.body.len() as u32).to_be_bytes());
    framed.append(&mut plan.body);
    plan.body = framed;
    plan.method = "POST".into();
    plan.targets = vec![RequestTarget { path }];
    for (name, value) in [("te", "trailers"), ("content-type", "application/grpc")] {
        if !plan.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            plan.headers.push((name.into(), value.into()));
        }
    }
    Ok(())
}

pub fn input(file: &Path, method: &str) -> Result<MessageDescriptor> {
    let name = file.display().to_string().escape_debug().to_string();
    let pool =
        DescriptorPool::decode(read_file(file, MAX_BODY_BYTES, "--grpc METHOD@FILE")?.as_slice()).map_err(|_| {
            wrong_usage(format!(
                "--grpc METHOD@FILE: {name} is not a set of descriptors: make it with protoc --include_imports \
             --descriptor_set_out={name}"
            ))
        })?;
    let (service, method_name) = method.split_once('/').unwrap_or_default();
    let Some(found) = pool.get_service_by_name(service) else {
        let known: Vec<String> = pool.services().take(5).map(|service| service.full_name().into()).collect();
        return Err(wrong_usage(format!(
            "--grpc METHOD@FILE: {name} has no service {service}: it has {}",
            known.join(", ")
        )));
    };
    let Some(found) = found.methods().find(|known| known.name() == method_name) else {
        let known: Vec<String> = found.methods().take(10).map(|method| method.name().into()).collect();
        return Err(wrong_usage(format!(
            "the service {service} has no method {method_name}: it has {}",
            known.join(", ")
        )));
    };
    refuse_if(
        found.is_client_streaming(),
        format!("{method} takes a stream of messages: name a method that takes one"),
    )?;
    Ok(found.input())
}

pub fn encoded(of: MessageDescriptor, json: &[u8]) -> Result<Vec<u8>> {
    let json: &[u8] = if json.is_empty() { b"{}" } else { json };
    let name = of.full_name().to_string();
    let wrong = |why: serde_json::Error| {
        wrong_usage(format!("the body is not a {name} in JSON: {}", why.to_string().escape_debug()))
    };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let message = DynamicMessage::deserialize(of, &mut reader).map_err(wrong)?;
    reader.end().map_err(wrong)?;
    Ok(message.encode_to_vec())
}
