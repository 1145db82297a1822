import { CaptureStore } from '../../../src/agent/inspector/capture-store.ts';
import { CaptureTime } from '../../../src/agent/inspector/capture-time.ts';
import { ConnectionCapture } from '../../../src/agent/inspector/connection-capture.ts';

export const TUNNEL = 'tunnel';

/** A captured connection, to which bytes are given as text, one byte a character. */
export function setUpCapture(store = new CaptureStore(), time = new CaptureTime(() => 0)) {
  const capture = new ConnectionCapture({ tunnelId: TUNNEL, store, time });
  return {
    store,
    capture,
    client: (...parts: string[]) => parts.forEach((part) => void capture.fromClient(Buffer.from(part, 'latin1'))),
    upstream: (...parts: string[]) => parts.forEach((part) => void capture.toClient(Buffer.from(part, 'latin1'))),
    /** Oldest first. */
    exchanges: () => [...store.listOldestFirst(TUNNEL)],
  };
}

/** A captured exchange: a request with its response. */
export function captured(request: string, response: string, store = new CaptureStore()) {
  const { client, upstream, exchanges } = setUpCapture(store);
  client(request);
  upstream(response);
  const [exchange] = exchanges().slice(-1);
  if (!exchange) throw new Error('nothing was captured');
  return exchange;
}
