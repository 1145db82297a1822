import { once } from 'node:events';
import net from 'node:net';
import { hasErrno } from '../../lib/errors.ts';

/** `leaving`: the owner was just closing its socket, so that asking again will tell. */
type Answer = 'held' | 'contending' | 'leaving' | 'dead';

/** Milliseconds after which a process that accepts but does not answer counts as busy holding. */
const ANSWER_MS = 2_000;

/** A socket that tells whoever connects whether its owner holds a lock or still contends for it. */
export class LockSocket {
  #state: 'held' | 'contending' = 'contending';
  readonly #server = net.createServer((client) => {
    client.on('error', () => client.destroy());
    client.end(this.#state);
  });

  /** @throws when the socket cannot be made */
  async listen(path: string): Promise<void> {
    this.#server.listen(path);
    await once(this.#server, 'listening');
    // A contender that cannot be accepted takes the lock for held, which it is.
    this.#server.on('error', () => {});
    // A lock alone is no reason to stay alive.
    this.#server.unref();
  }

  hold(): void {
    this.#state = 'held';
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    await closed;
  }
}

/** Asks the owner of a lock socket; a socket that nobody listens on any more is dead. */
export async function probe(path: string): Promise<Answer> {
  const client = net.connect(path);
  client.setTimeout(ANSWER_MS, () => client.destroy());
  try {
    let answer = '';
    for await (const chunk of client.setEncoding('utf8')) answer += chunk;
    if (answer === 'held' || answer === 'contending') return answer;
    return 'leaving';
  } catch (error) {
    if (hasErrno(error, 'ECONNREFUSED') || hasErrno(error, 'ENOENT')) return 'dead';
    if (hasErrno(error, 'ECONNRESET')) return 'leaving';
    // Whatever else it is, someone may be there.
    return 'held';
  }
}
