import type { TLSSocket } from 'node:tls';

interface AgentServer {
  accept(secured: TLSSocket): void;
}

/** The first byte of muxado: the highest of three length bytes, and an agent's heartbeat frame is never that long. */
const MUXADO_BYTE = 0;

export class AgentConnections {
  #open: (server: AgentServer) => void = () => {};
  readonly #server = new Promise<AgentServer>((resolve) => {
    this.#open = resolve;
  });

  /** @param silenceTimeout milliseconds in which a client without a host name must send its first byte */
  constructor(
    readonly name: string,
    private readonly silenceTimeout = 30_000,
    /** Names that it had before: agents that were away know no other one. */
    private readonly formerNames: readonly string[] = [],
  ) {}

  get names(): readonly string[] {
    return [this.name, ...this.formerNames];
  }

  /** Starts serving. Agents that connected before have waited: their SDKs would count a refusal as a failed attempt. */
  open(server: AgentServer): void {
    this.#open(server);
  }

  accept(secured: TLSSocket): void {
    secured.on('error', () => {});
    void this.#server.then((server) => {
      if (!secured.destroyed) server.accept(secured);
    });
  }

  /** Detects what a client without a host name speaks, as SDKs that connect to an IP address: muxado, or else HTTP. */
  detect(secured: TLSSocket, onHttp: () => void): void {
    secured.on('error', () => {});
    const timer = setTimeout(() => secured.destroy(), this.silenceTimeout);
    secured.once('close', () => clearTimeout(timer));
    secured.once('readable', () => {
      clearTimeout(timer);
      const first: Buffer | null = secured.read();
      if (first === null) {
        secured.destroy();
        return;
      }
      secured.unshift(first);
      if (first[0] === MUXADO_BYTE) this.accept(secured);
      else onHttp();
    });
  }
}
