import { StreamType } from '../../../../src/agent-protocol/messages.ts';
import { ProtocolAgent } from '../../../support/protocol-agent.ts';
import type { HistoryNode } from './history-node.ts';
import type { ServingRecord, Tenure } from './serving-record.ts';

/** Type of the stream and length of its header. */
const PREFIX_BYTES = 12;

export interface Credential {
  id: string;
  token: string;
}

/** A session of an agent at a gateway; it answers every request with the number of the tenure in which it is served. */
export class HistoryAgent {
  static readonly #tenures: Tenure[] = [];
  readonly #leaving = new AbortController();
  readonly #held = new Map<string, { tenure: Tenure; id: string }>();
  /** Of its last tenure of each name: what it answers. */
  readonly #numbers = new Map<string, number>();
  #session: ProtocolAgent | null = null;
  /** Its `ClientId`. */
  id = '';

  private constructor(
    readonly credential: Credential,
    private readonly record: ServingRecord,
  ) {}

  /**
   * @param as of which agent it is another session; left out: a new one
   * @param as.number above 0: besides the others, else in their place
   * @returns null when the gateway takes none
   */
  static async open(
    { sessionPort }: HistoryNode,
    credential: Credential,
    record: ServingRecord,
    as: { id: string; number: number } = { id: '', number: 0 },
  ): Promise<HistoryAgent | null> {
    const agent = new HistoryAgent(credential, record);
    const life = {
      target: { sessionPort, authtoken: credential.token },
      from: '127.0.0.1',
      signal: agent.#leaving.signal,
    };
    try {
      const onStream = (session: ProtocolAgent, stream: number) => agent.#reader(session, stream);
      const session = await ProtocolAgent.open(life, onStream, { ClientId: as.id, Extra: { LegNumber: as.number } });
      const { ClientId, Error: refused } = JSON.parse(session.answer || '{"Error":"closed"}');
      if (refused) return null;
      agent.id = ClientId;
      agent.#session = session;
      session.socket.once('close', () => agent.#end());
      return session.socket.destroyed ? null : agent;
    } catch {
      return null;
    }
  }

  /** The tenure that an answer names. */
  static tenure(answer: string): Tenure {
    const tenure = HistoryAgent.#tenures[Number(answer)];
    if (!tenure) throw new Error(`no agent answers ${answer}`);
    return tenure;
  }

  get isOpen(): boolean {
    return this.#session?.socket.destroyed === false;
  }

  async bind(name: string): Promise<void> {
    if (this.#held.has(name)) return;
    const tenure = this.record.asked(name, this.credential.id);
    const held = { tenure, id: '' };
    this.#held.set(name, held);
    this.#numbers.set(name, HistoryAgent.#tenures.push(tenure) - 1);
    const request = { Id: '', Proto: 'https', ForwardsTo: '', Opts: { Domain: name }, Extra: {} };
    const answer = await this.#session?.call(StreamType.bind, JSON.stringify(request));
    const { Id, Error: refused } = JSON.parse(answer || '{"Error":"closed"}');
    if (refused || !this.isOpen) return this.#over(name);
    tenure.boundAt = performance.now();
    held.id = Id;
  }

  unbind(name: string): void {
    const id = this.#held.get(name)?.id;
    if (!id) return;
    this.#over(name);
    void this.#session?.call(StreamType.unbind, JSON.stringify({ Id: id }));
  }

  leave(): void {
    this.#leaving.abort();
    this.#end();
  }

  #end(): void {
    for (const name of [...this.#held.keys()]) this.#over(name);
  }

  #over(name: string): void {
    const tenure = this.#held.get(name)?.tenure;
    if (tenure) tenure.endedAt = Math.min(tenure.endedAt, performance.now());
    this.#held.delete(name);
  }

  /** Reads what the gateway sends on a stream: a client's requests, or that an endpoint is stopped. */
  #reader(session: ProtocolAgent, stream: number): (piece: Buffer) => void {
    let bytes = Buffer.alloc(0);
    return (piece) => {
      bytes = Buffer.concat([bytes, piece]);
      if (bytes.length < PREFIX_BYTES) return;
      if (bytes.readUInt32BE(0) === StreamType.stopTunnel) {
        const { Id } = JSON.parse(bytes.subarray(4).toString());
        for (const [name, { id }] of this.#held) if (id === Id) this.#over(name);
        return;
      }
      const header = PREFIX_BYTES + Number(bytes.readBigInt64LE(4));
      const end = bytes.indexOf('\r\n\r\n', header);
      if (end < 0) return;
      const [, name = ''] = /^host: ([^:\r]+)/im.exec(bytes.subarray(header, end).toString('latin1')) ?? [];
      bytes = bytes.subarray(0, header);
      const number = String(this.#numbers.get(name));
      session.send(stream, Buffer.from(`HTTP/1.1 200 OK\r\ncontent-length: ${number.length}\r\n\r\n${number}`));
    };
  }
}
