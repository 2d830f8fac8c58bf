// The closed loop of k6: each virtual user sends its next request as soon as the answer is there.
import http from "k6/http";

export const options = { discardResponseBodies: true };

export default function () {
  http.get(__ENV.URL);
}

export function handleSummary(data) {
  const { http_reqs, http_req_failed } = data.metrics;
  return { stdout: `${http_reqs.values.count - http_req_failed.values.passes} requests ok\n` };
}
