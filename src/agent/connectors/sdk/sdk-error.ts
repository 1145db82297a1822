import { ApiError, messageOf } from '../../../lib/errors.ts';
import { DeadlineExceeded } from '../../../lib/time/deadline.ts';
import { apiErrorOf, type GatewayError, offline, redact } from '../gateway-error.ts';

/** Messages of the SDK when the connection broke during a call; a gateway's refusals never match. */
const BROKEN_CONNECTION =
  /^(?:failed to open muxado stream|transport error|error (?:sending|reading) rpc|failed to deserialize rpc response)/;

/**
 * Parses an SDK error. Only `connect()` and `listen()` set `errorCode`, but all methods put it into the message:
 * `failed to start listener: <text> error_code: ERR_NGROK_334`.
 *
 * @param secret removed from the message in case the gateway quotes it
 */
export function parseSdkError(error: unknown, secret: string): GatewayError {
  const text = messageOf(error).replace(
    /^(?:failed to (?:connect session|start listener)|error closing listener): /,
    '',
  );
  const [, message = text, code = null] = /^(.*?)\s*error_code: (ERR_NGROK_\d+)\s*$/s.exec(text) ?? [];
  return { code, message: redact(message.trim(), secret) };
}

/**
 * Parses why a forwarder ended. The SDK prints Rust's debug form:
 * `error forwarding: Custom { …, error: ListenerClosed { message: "…", error_code: Some("ERR_NGROK_…") } }`.
 */
export function parseListenerClosed(error: unknown, secret: string): GatewayError {
  const text = messageOf(error);
  const [, quoted, code = null] =
    /ListenerClosed \{ message: ("(?:[^"\\]|\\.)*"), error_code: (?:Some\("(\w+)"\)|None) \}/.exec(text) ?? [];
  return { code, message: redact(quoted === undefined ? text : unquote(quoted), secret) };
}

export function toApiError(error: unknown, secret: string): ApiError {
  if (error instanceof ApiError) return error;
  const { code, message } = parseSdkError(error, secret);
  if (error instanceof DeadlineExceeded) return offline(message, error);
  if (code === null && BROKEN_CONNECTION.test(message)) return offline(message);
  return apiErrorOf({ code, message });
}

/** Rust escapes nearly like JSON; rarer escapes (`\u{7f}`, `\'`) stay unchanged. */
function unquote(quoted: string): string {
  try {
    return String(JSON.parse(quoted));
  } catch {
    return quoted.slice(1, -1);
  }
}
