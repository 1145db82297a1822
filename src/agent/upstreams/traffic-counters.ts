import { messageOf } from '../../lib/errors.ts';
import type { ConnectionEnd, ConnectionTraffic } from '../connectors/connector.ts';

export interface Traffic {
  /** Null where the embedded gateway has counted, and not the agent. */
  readonly connections: number | null;
  /** HTTP requests; of other protocols, connections. */
  readonly requests: number;
  /** Bytes from clients, and to clients. */
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** When data last passed; null when none did. */
  readonly lastAt: Date | null;
}

/** Captures what a connection carries, until it is over. */
export interface TrafficCapture {
  readonly isOver: boolean;
  fromClient(bytes: Buffer): void;
  toClient(bytes: Buffer): void;
  failed(reason: string): void;
  closed(inOrder: boolean, by: ConnectionEnd): void;
}

/** Logs the requests of a connection of the tunnel with that URL. */
export type StartRequestLog = (url: () => string) => TrafficCapture;

const REQUEST_LINE = /^[A-Z]{3,20} \S/;
const REQUEST_LINE_BYTES = 24;

/** What passed through all tunnels, deleted ones included. */
export class TrafficTotals {
  requests = 0;
  bytesIn = 0;
  bytesOut = 0;
}

/** Counts what passes through one tunnel since the start of the agent, as far as it passes through the agent. */
export class TrafficCounters {
  #connections = 0;
  #requests = 0;
  #bytesIn = 0;
  #bytesOut = 0;
  #lastAt = 0;
  #capture: (() => TrafficCapture) | null = null;

  /** Whether a connector connects to the upstream on its own, so that the agent sees nothing of it. */
  isBypassed = false;
  /** @param startLog called for every connection of HTTP; null: requests are not logged */
  constructor(
    private readonly totals = new TrafficTotals(),
    private readonly startLog: (() => TrafficCapture) | null = null,
  ) {}

  /** What was counted; null when connections bypass the agent. */
  get traffic(): Traffic | null {
    if (this.isBypassed) return null;
    return {
      connections: this.#connections,
      requests: this.#requests,
      bytesIn: this.#bytesIn,
      bytesOut: this.#bytesOut,
      lastAt: this.#lastAt === 0 ? null : new Date(this.#lastAt),
    };
  }

  /** Whether connections must not bypass the agent. */
  get isCaptured(): boolean {
    return this.#capture !== null || this.startLog !== null;
  }

  /** @param capture called for new connections, and for open ones with their next request; null: nothing is captured */
  captureBy(capture: (() => TrafficCapture) | null): void {
    this.#capture = capture;
  }

  connection(isHttp: boolean): ConnectionTraffic {
    this.#connections++;
    if (!isHttp) this.#countRequest();
    let capture = isHttp && this.#capture ? this.#capture() : null;
    const logged = isHttp && this.startLog ? this.startLog() : null;
    // A request begins at the start, or after the response to the one before; bodies and upgraded connections follow.
    let mayBegin = isHttp;
    return {
      fromClient: (bytes) => {
        this.#bytesIn += bytes.length;
        this.totals.bytesIn += bytes.length;
        this.#lastAt = Date.now();
        if (mayBegin) {
          mayBegin = false;
          if (REQUEST_LINE.test(bytes.toString('latin1', 0, REQUEST_LINE_BYTES))) {
            this.#countRequest();
            if (this.#capture && (capture === null || capture.isOver)) capture = this.#capture();
          }
        }
        capture?.fromClient(bytes);
        logged?.fromClient(bytes);
      },
      toClient: (bytes) => {
        this.#bytesOut += bytes.length;
        this.totals.bytesOut += bytes.length;
        this.#lastAt = Date.now();
        mayBegin = isHttp;
        capture?.toClient(bytes);
        logged?.toClient(bytes);
      },
      failed: (error) => {
        capture?.failed(messageOf(error));
        logged?.failed(messageOf(error));
      },
      closed: (inOrder, by) => {
        capture?.closed(inOrder, by);
        logged?.closed(inOrder, by);
      },
    };
  }

  #countRequest(): void {
    this.#requests++;
    this.totals.requests++;
  }
}
