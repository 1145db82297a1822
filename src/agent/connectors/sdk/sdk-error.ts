import { DeadlineExceeded } from '../../../lib/deadline.ts';
import { ApiError, messageOf } from '../../../lib/errors.ts';
import { AgentError, RETRY_AFTER_S } from '../../errors/agent-error.ts';

/** What an error of the SDK says: the gateway's code, when the gateway gave one, and its text. */
export interface SdkError {
  code: string | null;
  message: string;
}

/** The HTTP status of what the gateway refuses; all else is 502. */
const STATUS_BY_CODE: Readonly<Record<string, number>> = {
  // The endpoint is online already.
  ERR_NGROK_334: 409,
  ERR_NGROK_18016: 409,
  ERR_NGROK_18017: 409,
  // The account, its ACL or its plan does not allow it.
  ERR_NGROK_308: 403,
  ERR_NGROK_316: 403,
  ERR_NGROK_356: 403,
  ERR_NGROK_399: 403,
  ERR_NGROK_332: 501,
};

/** Texts of the SDK itself when the connection broke under a call; a gateway's refusal never reads like this. */
const BROKEN_CONNECTION =
  /^(?:failed to open muxado stream|transport error|error (?:sending|reading) rpc|failed to deserialize rpc response)/;

/**
 * Takes an SDK error apart. Only `connect()` and `listen()` fill in `errorCode`, all of them put it into the message:
 * `failed to start listener: <text> error_code: ERR_NGROK_334`.
 *
 * @param secret never appears in the result, whatever the gateway quotes
 */
export function parseSdkError(error: unknown, secret: string): SdkError {
  const text = messageOf(error).replace(
    /^(?:failed to (?:connect session|start listener)|error closing listener): /,
    '',
  );
  const [, message = text, code = null] = /^(.*?)\s*error_code: (ERR_NGROK_\d+)\s*$/s.exec(text) ?? [];
  return { code, message: redact(message.trim(), secret) };
}

/**
 * Reads why a forwarder ended. The SDK prints Rust's debug form:
 * `error forwarding: Custom { …, error: ListenerClosed { message: "…", error_code: Some("ERR_NGROK_…") } }`.
 */
export function parseListenerClosed(error: unknown, secret: string): SdkError {
  const text = messageOf(error);
  const [, quoted, code = null] =
    /ListenerClosed \{ message: ("(?:[^"\\]|\\.)*"), error_code: (?:Some\("(\w+)"\)|None) \}/.exec(text) ?? [];
  return { code, message: redact(quoted === undefined ? text : unquote(quoted), secret) };
}

/** The answer to a request for which there is no session. */
export function offline(reason: string, cause?: unknown): AgentError {
  const message = `no session with the gateway: ${reason}`;
  return new AgentError('ERR_AGENT_OFFLINE', message, { retryAfter: RETRY_AFTER_S, cause });
}

/** Turns the failure of a bind into the answer that the API gives. */
export function toApiError(error: unknown, secret: string): ApiError {
  if (error instanceof ApiError) return error;
  const { code, message } = parseSdkError(error, secret);
  if (error instanceof DeadlineExceeded) return offline(message, error);
  if (code === null && BROKEN_CONNECTION.test(message)) return offline(message);
  if (code === null) return new AgentError('ERR_AGENT_GATEWAY_REFUSED', message);
  return new ApiError(STATUS_BY_CODE[code] ?? 502, code, message);
}

function redact(text: string, secret: string): string {
  return secret === '' ? text : text.replaceAll(secret, '[authtoken]');
}

/** Rust escapes nearly as JSON does; what is more exotic (`\u{7f}`, `\'`) is left as it is. */
function unquote(quoted: string): string {
  try {
    return String(JSON.parse(quoted));
  } catch {
    return quoted.slice(1, -1);
  }
}
