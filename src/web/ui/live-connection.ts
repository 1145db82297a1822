import { type ReadonlySignal, signal } from '@preact/signals';
import { besidePage } from './api.ts';

/** `connecting`: before the first event; `lost`: it was live and reconnects. */
export type LiveState = 'connecting' | 'live' | 'lost';

export interface LiveConnection {
  readonly state: ReadonlySignal<LiveState>;
  /** When the last event arrived, in milliseconds since the Unix epoch; 0 before the first. */
  readonly lastEvent: ReadonlySignal<number>;
  close(): void;
}

export interface LiveOptions {
  /** A path of the API. */
  path: string;
  /** Receives each event by its name. */
  on: Readonly<Record<string, (data: unknown) => void>>;
  /** Called after a failed attempt; resolves to false when the connection makes no sense any more, such as signed out. */
  shouldRetry: () => Promise<boolean>;
}

/** The server sends an event every ten seconds at least. */
const SILENCE_MS = 25_000;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 8_000;

/**
 * Keeps a stream of server-sent events open. Unlike EventSource alone, it also reconnects after an answer with an error, as a
 * gateway gives while the device is away, and notices a dead connection.
 */
export function connectLive({ path, on, shouldRetry }: LiveOptions): LiveConnection {
  const state = signal<LiveState>('connecting');
  const lastEvent = signal(0);
  let source: EventSource | null = null;
  let timer = 0;
  let failures = 0;
  let closed = false;

  const disconnect = () => {
    window.clearTimeout(timer);
    source?.close();
    source = null;
  };
  const alive = () => {
    failures = 0;
    state.value = 'live';
    lastEvent.value = Date.now();
    window.clearTimeout(timer);
    timer = window.setTimeout(retry, SILENCE_MS);
  };
  const retry = async () => {
    disconnect();
    if (state.value === 'live') state.value = 'lost';
    // It may have connected meanwhile, as the network came back.
    if (!(await shouldRetry()) || closed || source !== null) return;
    window.clearTimeout(timer);
    const ceiling = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** failures++);
    // Jitter, so that all open pages do not reconnect in step.
    timer = window.setTimeout(connect, ceiling * (0.5 + Math.random() / 2));
  };
  const connect = () => {
    disconnect();
    const opened = new EventSource(besidePage(path));
    source = opened;
    timer = window.setTimeout(retry, SILENCE_MS);
    opened.addEventListener('error', () => {
      if (source === opened) void retry();
    });
    opened.addEventListener('alive', alive);
    for (const [name, take] of Object.entries(on)) {
      opened.addEventListener(name, ({ data }: MessageEvent<string>) => {
        alive();
        take(JSON.parse(data));
      });
    }
  };
  const connectNow = () => {
    if (!closed && state.value !== 'live') connect();
  };
  window.addEventListener('online', connectNow);
  connect();
  return {
    state,
    lastEvent,
    close: () => {
      closed = true;
      window.removeEventListener('online', connectNow);
      disconnect();
    },
  };
}
