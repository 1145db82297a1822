import type { ClientResponse } from '../http/client-message.ts';

/** A client that sends its body only after `100 Continue` (RFC 9110, 10.1.1). */
export class ExpectContinue {
  isPending = true;

  constructor(private readonly res: ClientResponse) {}

  /** Sends the interim response, once. */
  send(): void {
    if (!this.isPending) return;
    this.isPending = false;
    this.res.writeInterim(100, []);
  }
}
