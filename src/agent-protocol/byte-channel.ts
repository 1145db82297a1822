/** Receives what arrives on a {@link ByteChannel}. Nothing follows `onClosed`. */
export interface ByteReceiver {
  onData(bytes: Buffer): void;
  onEnd(): void;
  /** There is room to write again, or everything has been sent, including the end. */
  onDrain?(): void;
  /** Both directions are closed; with an error when they did not end in an orderly way. */
  onClosed?(error?: Error): void;
}

/** A stream of bytes in both directions. A Node stream would cost a small request more than everything else on the way. */
export interface ByteChannel {
  receiver: ByteReceiver;
  /** @returns false when the writer should wait for {@link ByteReceiver.onDrain} */
  write(bytes: Buffer): boolean;
  /** Sends no more; the other direction stays open. */
  end(): void;
  /** Ends both directions. The receiver is not called again. */
  abort(): void;
  /** Slows the sender down; bytes already on the way still arrive. */
  pause(): void;
  resume(): void;
  /** The receiver keeps this many further bytes on behalf of the stream, or fewer. */
  keep?(bytes: number): void;
  /** Grows after what was written has left, and what had arrived before that was passed on; undefined: unknown. */
  readonly departures?: number;
  /** Whether it shares a connection with bulk, while a new channel would use one with far less. */
  readonly isCrowded?: boolean;
  /** @param client IP address of the client that it is used for from now on */
  usedBy?(client: string): void;
}
