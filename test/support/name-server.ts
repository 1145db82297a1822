import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket as TcpSocket } from 'node:net';
import { type Answer, decode, encode, type Packet, type Question, RECURSION_AVAILABLE } from 'dns-packet';

type Rcode = 'SERVFAIL' | 'NXDOMAIN';
const RCODES: Record<Rcode, number> = { SERVFAIL: 2, NXDOMAIN: 3 };
const MAX_CHAIN = 10;

/** A recursive resolver with a few records, which tests can change at any time. */
export class NameServer {
  readonly #records: Answer[] = [];
  readonly #failing = new Set<string>();
  readonly #delegations = new Map<string, { host: string; port: number }>();
  /** Every query, as `type name`. */
  readonly asked: string[] = [];

  #tcp: Server | null = null;
  /** How many further queries over TCP for a name fail. */
  readonly #failingOverTcp = new Map<string, number>();

  private constructor(
    private readonly socket: Socket,
    /** `ip:port`, for Node's resolvers. */
    readonly address: string,
  ) {
    socket.on('message', (packet, from) => void this.#answer(packet, from));
  }

  static async start(host = '127.0.0.1', port = 0): Promise<NameServer> {
    const socket = createSocket('udp4');
    socket.bind({ address: host, port });
    await once(socket, 'listening');
    return new NameServer(socket, `${host}:${socket.address().port}`);
  }

  /** One that answers over TCP, too, as Pebble asks. */
  static async startWithTcp(): Promise<NameServer> {
    for (;;) {
      const started = await NameServer.start();
      const tcp = createServer((socket) => started.#serve(socket)).listen(
        Number(started.address.split(':')[1]),
        '127.0.0.1',
      );
      try {
        await once(tcp, 'listening');
        started.#tcp = tcp;
        return started;
      } catch {
        await started.stop(); // The port is in use.
      }
    }
  }

  #serve(socket: TcpSocket): void {
    let unread: Buffer = Buffer.alloc(0);
    socket.on('error', () => socket.destroy());
    socket.on('data', async (chunk) => {
      unread = Buffer.concat([unread, chunk]);
      while (unread.length >= 2 && unread.length >= 2 + unread.readUInt16BE(0)) {
        const query = decode(unread.subarray(2, 2 + unread.readUInt16BE(0)));
        unread = unread.subarray(2 + unread.readUInt16BE(0));
        const answer = this.#failsOverTcp(query) ? failure(query) : await this.#answerTo(query);
        if (answer === null) continue;
        const length = Buffer.alloc(2);
        length.writeUInt16BE(answer.length);
        socket.write(Buffer.concat([length, answer]));
      }
    });
  }

  async stop(): Promise<void> {
    this.#tcp?.close();
    await new Promise<void>((resolve) => this.socket.close(() => resolve()));
  }

  /** Adds a record. A name that starts with `*.` covers every name below it without its own record. */
  add(record: Answer): void {
    this.#records.push(record);
  }

  cname(name: string, target: string): void {
    this.add({ type: 'CNAME', name, data: target });
  }

  /** Removes all records of a name. */
  remove(name: string): void {
    for (let index = this.#records.length - 1; index >= 0; index -= 1) {
      if (this.#records[index]?.name === name) this.#records.splice(index, 1);
    }
  }

  /** Answers SERVFAIL to every query for the name. */
  break(name: string): void {
    this.#failing.add(name);
  }

  /** Ends {@link NameServer.break}. */
  mend(name: string): void {
    this.#failing.delete(name);
  }

  /** Answers SERVFAIL to so many queries over TCP for the name, such as those of a CA that validates it. */
  breakOverTcp(name: string, queries: number): void {
    this.#failingOverTcp.set(name, queries);
  }

  #failsOverTcp({ questions: [question] = [] }: Packet): boolean {
    const name = question?.name.toLowerCase() ?? '';
    const left = this.#failingOverTcp.get(name) ?? 0;
    this.#failingOverTcp.set(name, left - 1);
    return left > 0;
  }

  /** Delegates a zone to another server. */
  delegate(zone: string, host: string, port: number): void {
    this.#delegations.set(zone, { host, port });
  }

  async #answer(packet: Buffer, from: RemoteInfo): Promise<void> {
    const answer = await this.#answerTo(decode(packet));
    if (answer !== null) this.socket.send(answer, from.port, from.address);
  }

  async #answerTo({ id = 0, questions: [question] = [] }: Packet): Promise<Buffer | null> {
    if (!question) return null;
    this.asked.push(`${question.type} ${question.name}`);
    const { answers, rcode } = await this.#resolve({ ...question, name: question.name.toLowerCase() });
    const flags = RECURSION_AVAILABLE | (rcode === null ? 0 : RCODES[rcode]);
    return encode({ type: 'response', id, flags, questions: [question], answers });
  }

  async #resolve(question: Question): Promise<{ answers: Answer[]; rcode: Rcode | null }> {
    const chain: Answer[] = [];
    let { name } = question;
    while (chain.length < MAX_CHAIN) {
      if (this.#failing.has(name)) return { answers: [], rcode: 'SERVFAIL' };
      const zone = [...this.#delegations].find(([zone]) => name === zone || name.endsWith(`.${zone}`));
      if (zone) {
        const below = await ask({ ...question, name }, zone[1]).catch(() => null);
        if (below === null) return { answers: [], rcode: 'SERVFAIL' };
        return { answers: [...chain, ...below], rcode: below.length + chain.length > 0 ? null : 'NXDOMAIN' };
      }
      const present = this.#at(name);
      const wanted = present.filter(({ type }) => type === question.type);
      const [alias] = present.filter(({ type }) => type === 'CNAME');
      if (wanted.length > 0) return { answers: [...chain, ...wanted], rcode: null };
      if (alias?.type !== 'CNAME') {
        return { answers: chain, rcode: present.length === 0 && chain.length === 0 ? 'NXDOMAIN' : null };
      }
      chain.push(alias);
      name = String(alias.data);
    }
    return { answers: chain, rcode: null };
  }

  #at(name: string): Answer[] {
    const own = this.#records.filter((record) => record.name === name);
    const wildcard = `*.${name.split('.').slice(1).join('.')}`;
    return own.length > 0
      ? own
      : this.#records.filter((record) => record.name === wildcard).map((r) => ({ ...r, name }));
  }
}

function failure({ id = 0, questions = [] }: Packet): Buffer {
  return encode({ type: 'response', id, flags: RECURSION_AVAILABLE | RCODES.SERVFAIL, questions, answers: [] });
}

/** Forwards a query to another server over UDP. */
async function ask(question: Question, server: { host: string; port: number }): Promise<Answer[]> {
  const socket = createSocket('udp4');
  try {
    socket.send(encode({ type: 'query', id: 1, questions: [question] }), server.port, server.host);
    const [packet] = (await once(socket, 'message', { signal: AbortSignal.timeout(2000) })) as [Buffer];
    return decode(packet).answers ?? [];
  } finally {
    socket.close();
  }
}
