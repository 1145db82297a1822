import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { processorNow } from '../time/clock.ts';
import { CertificateInspection, type Presenter } from '../tls/certificate-inspection.ts';
import { runCertificateTask } from '../tls/certificate-turns.ts';

/** On whose behalf a handshake takes place, and with whom. */
export interface HandshakeParties {
  /** For example the authtoken of an endpoint: owners share the time for certificates. */
  readonly owner: string;
  /** Called with the processor time that certificates have taken, in milliseconds. */
  readonly charge?: (ms: number) => void;
}

/**
 * A connection under TLS whose other side may present certificates. OpenSSL verifies all of them, trusted or not, and its own
 * limits allow a chain that takes more than half a second. Until they are known to be cheap, see
 * {@link CertificateInspection}, what the other side sends waits for its turn. Node reads other connections without
 * JavaScript.
 */
export class MeteredConnection extends Duplex {
  /** Null before it is known what to inspect, and when that is done. */
  #inspection: CertificateInspection | null = null;
  #isFirst = true;
  /** Whether bytes wait for their turn. None are read meanwhile. */
  #isWaiting = false;
  #isPassing = false;
  /** The other side has ended behind the bytes that wait. */
  #hasEnded = false;

  /**
   * @param socket must have a listener for errors
   * @param peer names the other side: peers of an owner take turns
   */
  constructor(
    private readonly socket: Socket,
    private readonly parties: HandshakeParties,
    private readonly peer: string,
  ) {
    super();
    // The owner of the TLS socket decides how the connection ends.
    socket.allowHalfOpen = true;
    socket
      .on('data', (chunk: Buffer) => this.#take(chunk))
      .on('end', () => this.#endInput())
      .on('close', () => this.destroy());
    socket.pause();
  }

  /** @param secured the TLS connection over this one, right after it was created */
  inspect(secured: TLSSocket, presenter: Presenter): void {
    // A client's first bytes come in its turn, and contain no certificate.
    this.#isFirst = presenter === 'client';
    this.#inspection = new CertificateInspection(secured, presenter, () => {
      if (!this.#isPassing && !this.#isWaiting) queueMicrotask(() => this.#passInspected());
    });
  }

  override _read(): void {
    if (!this.#isWaiting) this.socket.resume();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.socket.write(chunk, done);
  }

  /** What TLS has at once goes out at once: otherwise, each record waits for the one before. */
  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.socket.cork();
    for (const [at, { chunk }] of chunks.entries())
      this.socket.write(chunk, at === chunks.length - 1 ? done : undefined);
    this.socket.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.socket.destroy();
    done(error);
  }

  #take(chunk: Buffer): void {
    if (this.#inspection === null) {
      this.#pass(chunk);
      return;
    }
    this.#inspection.add(chunk);
    if (this.#isFirst) {
      this.#isFirst = false;
      this.#passInspected();
      return;
    }
    this.#isWaiting = true;
    this.socket.pause();
    runCertificateTask(this.parties.owner, this.peer, () => this.#takeTurn());
  }

  #endInput(): void {
    if (this.#isWaiting) this.#hasEnded = true;
    else this.push(null);
  }

  #takeTurn(): void {
    if (this.destroyed) return;
    this.#isWaiting = false;
    this.socket.resume();
    const start = processorNow();
    this.#passInspected();
    this.parties.charge?.(processorNow() - start);
    if (this.#hasEnded) this.push(null);
  }

  #passInspected(): void {
    const inspection = this.#inspection;
    if (inspection === null || this.destroyed) return;
    this.#isPassing = true;
    try {
      for (let bytes = inspection.next(); bytes !== null; bytes = inspection.next()) this.#pass(bytes);
      if (inspection.isDone) this.#inspection = null;
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error(String(error)));
    } finally {
      this.#isPassing = false;
    }
  }

  #pass(chunk: Buffer): void {
    if (!this.push(chunk)) this.socket.pause();
  }
}
