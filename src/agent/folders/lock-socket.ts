import { once } from 'node:events';
import net from 'node:net';
import { hasErrno } from '../../lib/errors.ts';

/** `leaving`: the owner is closing its socket; ask again. */
type Answer = 'held' | 'contending' | 'leaving' | 'dead';

/** A process that accepts but does not answer within this time counts as holding the lock. */
const ANSWER_MS = 2_000;

/** A socket that answers connections with whether its owner holds a lock or still competes for it. */
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
    // A contender that cannot connect assumes that the lock is held, which it is.
    this.#server.on('error', () => {});
    // A lock alone must not keep the process alive.
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

/** Asks the owner of a lock socket; one that nobody listens on is dead. */
export async function askLockOwner(path: string): Promise<Answer> {
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
    // For any other error, someone may be listening.
    return 'held';
  }
}
