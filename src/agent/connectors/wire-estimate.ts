import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { kernelCount } from '../../lib/network/kernel-counts.ts';

/** IP and TCP with timestamps; IPv6 has 20 more. */
const HEADERS = { IPv4: 52, IPv6: 72 };
const SEGMENT = 1_428;
/** An acknowledgement waits so long for data that goes the same way (Linux, `TCP_DELACK_MIN`). */
const DELAYED_MS = 40;
/**
 * After a pause, this machine acknowledges data at once. So does a gateway that had nothing to answer the last time; else its answer
 * does (Linux: a delayed acknowledgement ends the mode for dialogues), in captured sessions that are idle.
 */
const PAUSE_MS = 200;
/** Bytes of the TCP option that acknowledges data after a gap. */
const SACK = 12;
/** Packets of other programs are in the kernel's counts: at most so many for each one that was sent. */
const MOST_RESENT = 3;

/** Packets that were lost, as the kernel counts them for this machine. */
export interface LostPackets {
  /** Sent again. */
  resent: number;
  /** Received after a gap: each was acknowledged at once. */
  afterGap: number;
  /** Received again. */
  repeated: number;
}

/** One direction of a connection. */
class Flow {
  packets = 0;
  bytes = 0;
  /** When data passed last, and since when it waits for its acknowledgement; in milliseconds of `performance.now()`. */
  at = Number.NEGATIVE_INFINITY;
  openAt: number | null = null;

  /** Whether what comes after a pause is acknowledged at once. */
  isPrompt: boolean;

  constructor(readonly isAlwaysPrompt: boolean) {
    this.isPrompt = isAlwaysPrompt;
  }

  /** Nothing was answered in time. @returns acknowledgements without data that this takes */
  endDialogue(): number {
    this.isPrompt = true;
    this.openAt = null;
    return 1;
  }
}

/** Estimates what a connection takes on the wire, from what its program has sent and received, and when. */
export class WireEstimate {
  #read = 0;
  #written = 0;
  readonly #in = new Flow(true);
  readonly #out = new Flow(false);
  /** The shortest time from data to data that came back. */
  #roundTrip = Number.POSITIVE_INFINITY;

  constructor(private readonly socket: Pick<Socket, 'bytesRead' | 'bytesWritten' | 'remoteFamily'>) {}

  get #headers(): number {
    return this.socket.remoteFamily === 'IPv6' ? HEADERS.IPv6 : HEADERS.IPv4;
  }

  /** @returns what has passed since the last call: as programs see it, and as it is on the wire */
  sample(now = performance.now()): { payload: number; wire: number } {
    const { bytesRead, bytesWritten } = this.socket;
    const [received, sent] = [bytesRead - this.#read, bytesWritten - this.#written];
    this.#read = bytesRead;
    this.#written = bytesWritten;
    let wire = 0;
    if (received > 0) {
      if (this.#out.openAt !== null) this.#roundTrip = Math.min(this.#roundTrip, now - this.#out.at);
      const roundTrip = Number.isFinite(this.#roundTrip) ? this.#roundTrip : 0;
      wire += this.#pass(this.#in, this.#out, received, now, roundTrip + DELAYED_MS);
    }
    if (sent > 0) wire += this.#pass(this.#out, this.#in, sent, now, DELAYED_MS);
    return { payload: received + sent, wire };
  }

  /** @returns what packets that were lost have taken */
  lost({ resent, afterGap, repeated }: LostPackets): number {
    const { packets: sent, bytes } = this.#out;
    const { packets: received } = this.#in;
    const size = Math.min(SEGMENT, sent === 0 ? SEGMENT : Math.ceil(bytes / sent));
    this.#in.packets = 0;
    Object.assign(this.#out, { packets: 0, bytes: 0 });
    const again = Math.min(resent, MOST_RESENT * (sent + 1)) * (size + this.#headers);
    const gaps = Math.min(afterGap, received) * (this.#headers + SACK);
    return again + gaps + Math.min(repeated, received) * (SEGMENT + this.#headers);
  }

  /** @returns what acknowledgements take that no data has carried, at the end of the connection */
  unacknowledged(): number {
    return [this.#in, this.#out].filter(({ openAt }) => openAt !== null).length * this.#headers;
  }

  /**
   * @param patience milliseconds for which data of the other direction may have waited to be acknowledged with this
   */
  #pass(flow: Flow, other: Flow, bytes: number, now: number, patience: number): number {
    const packets = Math.ceil(bytes / SEGMENT);
    let acknowledgements = 0;
    if (other.openAt !== null && now - other.openAt > patience) acknowledgements += other.endDialogue();
    other.openAt = null;
    const isAfterPause = now - flow.at > PAUSE_MS + patience;
    if (isAfterPause && flow.openAt !== null) acknowledgements += flow.endDialogue();
    // One for two packets, and later one for the rest.
    acknowledgements += Math.floor(packets / 2);
    if (packets % 2 === 1 && isAfterPause && flow.isPrompt) {
      acknowledgements += 1;
      flow.isPrompt = flow.isAlwaysPrompt;
    } else if (packets % 2 === 1) flow.openAt ??= now;
    flow.at = now;
    flow.packets += packets;
    flow.bytes += bytes;
    return bytes + this.#headers * (packets + acknowledgements);
  }
}

const NONE: LostPackets = { resent: 0, afterGap: 0, repeated: 0 };

/** Reads the kernel's counts; other systems than Linux have none. */
export class TcpLosses {
  #counts: LostPackets | null = null;

  /** @returns what was counted since the last call */
  async look(): Promise<LostPackets> {
    const before = this.#counts;
    try {
      const [tcp = '', more = ''] = await Promise.all(
        ['/proc/net/snmp', '/proc/net/netstat'].map((file) => readFile(file, 'utf8')),
      );
      this.#counts = {
        resent: kernelCount(tcp, 'Tcp', 'RetransSegs') || 0,
        afterGap: kernelCount(more, 'TcpExt', 'TCPOFOQueue') || 0,
        repeated: kernelCount(more, 'TcpExt', 'TCPDSACKOldSent') || 0,
      };
    } catch {
      return NONE;
    }
    const now = this.#counts;
    if (before === null) return NONE;
    const since = (name: keyof LostPackets) => Math.max(0, now[name] - before[name]);
    return { resent: since('resent'), afterGap: since('afterGap'), repeated: since('repeated') };
  }
}
