import type { TLSSocket } from 'node:tls';

/** What serves agents. */
export interface AgentServer {
  /** Takes a connection over. */
  accept(secured: TLSSocket): void;
}

/** What muxado's first frame begins with: a length of three bytes, and no agent's heartbeat stream is that long. */
const AGENT_BYTE = 0;

/** Where agents come in at the public TLS port. */
export class AgentSockets {
  #open: (server: AgentServer) => void = () => {};
  readonly #server = new Promise<AgentServer>((resolve) => {
    this.#open = resolve;
  });

  /**
   * @param name that agents ask for, lower case
   * @param patience milliseconds in which those who ask for no name have to say something
   */
  constructor(
    readonly name: string,
    private readonly patience = 30_000,
  ) {}

  /** Agents that were there before wait until now: their SDKs would take a refusal for a failed attempt. */
  open(server: AgentServer): void {
    this.#open(server);
  }

  /** Takes an agent's connection over. */
  accept(secured: TLSSocket): void {
    secured.on('error', () => {});
    void this.#server.then((server) => {
      if (!secured.destroyed) server.accept(secured);
    });
  }

  /**
   * Finds out who is there that asked for no name, as SDKs do whose server address is an IP address: an agent speaks
   * muxado, everybody else HTTP.
   */
  sort(secured: TLSSocket, onOther: (secured: TLSSocket) => void): void {
    secured.on('error', () => {});
    const timer = setTimeout(() => secured.destroy(), this.patience);
    secured.once('close', () => clearTimeout(timer));
    secured.once('readable', () => {
      clearTimeout(timer);
      const first: Buffer | null = secured.read();
      if (first === null) {
        secured.destroy();
        return;
      }
      secured.unshift(first);
      if (first[0] === AGENT_BYTE) this.accept(secured);
      else onOther(secured);
    });
  }
}
