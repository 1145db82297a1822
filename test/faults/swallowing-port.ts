import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** Listens as a process of its own, to be stopped as a whole. */
const LISTENER = `
  const [port, host] = process.argv.slice(1);
  require('net').createServer().listen({ port: Number(port), host, backlog: 1 }, () => console.log('listening'));
`;
/** Milliseconds after which a SYN on the loopback was dropped. */
const DROPPED_MS = 500;

/** A port for which the kernel drops every SYN, like a network that drops packets: its accept queue is full. */
export class SwallowingPort {
  private constructor(
    private readonly child: ChildProcess,
    private readonly fillers: Socket[],
  ) {}

  /** @param address `host:port` of the loopback that is free */
  static async open(address: string): Promise<SwallowingPort> {
    const { hostname, port } = new URL(`tcp://${address}`);
    const child = spawn(process.execPath, ['-e', LISTENER, port, hostname], { stdio: ['ignore', 'pipe', 'inherit'] });
    await Promise.race([
      once(child.stdout, 'data'),
      once(child, 'exit').then(() => Promise.reject(new Error(`nothing can listen on ${address}`))),
    ]);
    child.kill('SIGSTOP');
    const fillers: Socket[] = [];
    // How many fit is not known: others may have dialled first, and stay in the queue when they give up.
    for (let isFull = false; !isFull; ) {
      const filler = connect(Number(port), hostname).on('error', () => {});
      fillers.push(filler);
      isFull = await once(filler, 'connect', { signal: AbortSignal.timeout(DROPPED_MS) }).then(
        () => false,
        () => true,
      );
    }
    return new SwallowingPort(child, fillers);
  }

  async close(): Promise<void> {
    for (const filler of this.fillers) filler.destroy();
    this.child.kill('SIGKILL');
    await once(this.child, 'exit');
  }
}
