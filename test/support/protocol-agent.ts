import type { TLSSocket } from 'node:tls';
import { FrameDecoder, type FrameHandler, FrameWriter } from '../../src/agent-protocol/frames.ts';
import { StreamType, streamPrefix } from '../../src/agent-protocol/messages.ts';
import { type Life, openTls, type Target } from '../attack/attack.ts';

const HEARTBEAT_MS = 5_000;
const HEARTBEAT_STREAM = 3;

type AgentLife = Pick<Life, 'from' | 'signal'> & { target: Pick<Target, 'sessionPort' | 'authtoken'> };
/** Takes what arrives on a stream of the gateway. */
type Reader = (piece: Buffer) => void;
type OnStream = (agent: ProtocolAgent, stream: number) => Reader | undefined;

/** An agent that keeps to the protocol as far as its test needs; it keeps only answers. */
export class ProtocolAgent implements FrameHandler {
  #nextId = 5;
  #stream = 0;
  readonly #answers = new Map<number, { text: string; resolve: (text: string) => void }>();
  readonly #readers = new Map<number, Reader>();
  readonly #writer = new FrameWriter();
  readonly #timer: NodeJS.Timeout;
  /** What its authentication was answered; empty without an answer. */
  answer = '';

  private constructor(
    readonly socket: TLSSocket,
    /** Called for every stream that the gateway opens, for a client. */
    private readonly onStream: (stream: number) => Reader | undefined,
  ) {
    const decoder = new FrameDecoder(this);
    socket.on('data', (chunk: Buffer) => decoder.push(chunk));
    this.send(HEARTBEAT_STREAM, streamPrefix(StreamType.heartbeat), { syn: true });
    this.#timer = setInterval(() => this.send(HEARTBEAT_STREAM, Buffer.alloc(4)), HEARTBEAT_MS);
    socket.once('close', () => {
      clearInterval(this.#timer);
      for (const { text, resolve } of this.#answers.values()) resolve(text);
    });
  }

  /**
   * Opens a session at a port for agents, or at the HTTPS port.
   *
   * @param auth members of its AUTH request that differ
   */
  static async open(
    life: AgentLife,
    onStream: OnStream = () => undefined,
    auth: { ClientId?: string; Extra?: object } = {},
  ) {
    const agent = await ProtocolAgent.#connect(life, onStream);
    agent.answer = await agent.#authenticate(life, auth);
    return agent;
  }

  /** The same, with a second link; returns that one. */
  static async openSecondLink(life: AgentLife): Promise<ProtocolAgent> {
    const [first, second] = [await ProtocolAgent.#connect(life), await ProtocolAgent.#connect(life)];
    const { ClientId } = JSON.parse(await first.#authenticate(life));
    const { Ticket } = JSON.parse(await first.call(StreamType.linkTicket, '{}'));
    const request = { AuthToken: life.target.authtoken, SessionId: ClientId, Ticket };
    await second.call(StreamType.link, JSON.stringify(request));
    return second;
  }

  static async #connect(life: AgentLife, onStream: OnStream = () => undefined) {
    const socket = await openTls(life.target.sessionPort, 'connect.localhost', life);
    const agent: ProtocolAgent = new ProtocolAgent(socket, (stream) => onStream(agent, stream));
    return agent;
  }

  #authenticate({ target }: AgentLife, { ClientId = '', Extra = {} }: { ClientId?: string; Extra?: object } = {}) {
    const extensions = { StreamWindow: 16_777_216, SecondLink: true, RequestFeed: true };
    const extra = { AuthToken: target.authtoken, Metadata: '', ...extensions, ...Extra };
    return this.call(StreamType.auth, JSON.stringify({ Version: ['3', '2'], ClientId, Extra: extra }));
  }

  /** The id of another stream of the agent. */
  nextStream(): number {
    const id = this.#nextId;
    this.#nextId += 2;
    return id;
  }

  /** Sends a request; resolves to what was answered, or when the session has ended. */
  call(type: number, body: string): Promise<string> {
    const id = this.nextStream();
    return new Promise((resolve) => {
      if (this.socket.destroyed) return resolve('');
      this.#answers.set(id, { text: '', resolve });
      this.send(id, streamPrefix(type), { syn: true });
      // More than a window would wait for credit, and frames have a length limit.
      const bytes = Buffer.from(body);
      for (let at = 0; at < bytes.length; at += 16_384) this.send(id, bytes.subarray(at, at + 16_384));
    });
  }

  send(stream: number, payload: Buffer, flags: { syn?: boolean; fin?: boolean } = {}): void {
    this.#writer.data(stream, [payload], payload.length, { syn: false, fin: false, ...flags });
    this.flush();
  }

  flush(): void {
    if (this.socket.writable) this.socket.write(Buffer.concat(this.#writer.take()));
  }

  onData(stream: number, _length: number, syn: boolean): void {
    this.#stream = stream;
    const reader = syn && stream % 2 === 0 ? this.onStream(stream) : undefined;
    if (reader) this.#readers.set(stream, reader);
  }

  onPayload(piece: Buffer): void {
    const answer = this.#answers.get(this.#stream);
    if (answer) answer.text += piece.toString('latin1');
    this.#readers.get(this.#stream)?.(piece);
    this.#writer.windowIncrement(this.#stream, piece.length);
    this.flush();
  }

  onDataEnd(fin: boolean): void {
    if (fin) this.#readers.delete(this.#stream);
    if (!fin || !this.#answers.has(this.#stream)) return;
    this.send(this.#stream, Buffer.alloc(0), { fin: true });
    this.#answered(this.#stream);
  }

  onReset(stream: number): void {
    this.#readers.delete(stream);
    this.#answered(stream);
  }

  onWindowIncrement(): void {}

  onGoAway(): void {
    this.socket.destroy();
  }

  #answered(stream: number): void {
    const answer = this.#answers.get(stream);
    this.#answers.delete(stream);
    answer?.resolve(answer.text);
  }
}
