import { expect, it } from 'vitest';
import { parseListenerClosed, parseSdkError, toApiError } from '../../../../src/agent/connectors/sdk/sdk-error.ts';

const SECRET = 'secret-token';

it.each([
  ['failed to start listener: already online error_code: ERR_NGROK_334', 409, 'ERR_NGROK_334', 'already online'],
  ['failed to start listener: not yours error_code: ERR_NGROK_316', 403, 'ERR_NGROK_316', 'not yours'],
  ['failed to start listener: no tcp here error_code: ERR_NGROK_332', 501, 'ERR_NGROK_332', 'no tcp here'],
  ['failed to start listener: all ports in use error_code: ERR_NGROK_18021', 503, 'ERR_NGROK_18021', 'all ports'],
  ['failed to start listener: two\nlines error_code: ERR_NGROK_9030', 502, 'ERR_NGROK_9030', 'two\nlines'],
  ['failed to start listener: no reason given', 502, 'ERR_AGENT_GATEWAY_REFUSED', 'no reason given'],
  ['failed to start listener: failed to open muxado stream', 503, 'ERR_AGENT_OFFLINE', /muxado/],
])('maps %j to status %i', (message, status, code, text) => {
  const error = toApiError(new Error(message), SECRET);
  expect(error).toMatchObject({ status, code });
  expect(error.message).toMatch(text);
});

it.each(['ERR_NGROK_2200', 'ERR_NGROK_9026'])(
  'answers 400 to a refused policy, with each problem by its place: %s',
  (code) => {
    const message =
      'failed to start listener: the traffic policy provided is invalid: on_http_request[0].expressions[1]: no variable x\n' +
      `on_http_response[2].actions[0].config.headers: is missing error_code: ${code}`;
    expect(toApiError(new Error(message), SECRET)).toMatchObject({
      status: 400,
      code,
      details: {
        'policy.on_http_request[0].expressions[1]': 'no variable x',
        'policy.on_http_response[2].actions[0].config.headers': 'is missing',
      },
    });
  },
);

it('redacts the authtoken wherever the gateway quotes it', () => {
  const refused = 'failed to connect session: the authtoken secret-token is unknown error_code: ERR_NGROK_107';
  const closed = 'ListenerClosed { message: "secret-token was revoked", error_code: None }';
  expect(parseSdkError(new Error(refused), SECRET)).toEqual({
    code: 'ERR_NGROK_107',
    message: 'the authtoken [authtoken] is unknown',
  });
  expect(parseListenerClosed(new Error(closed), SECRET)).toEqual({ code: null, message: '[authtoken] was revoked' });
});
