import type { Listener } from '@ngrok/ngrok';
import { SessionEndpoint } from '../session-endpoint.ts';
import { parseListenerClosed } from './sdk-error.ts';

export class NgrokEndpoint extends SessionEndpoint {
  /** Starts forwarding. It ends when the gateway stops the endpoint. */
  forward(listener: Listener, to: string, secret: string): void {
    listener.forward(to).then(
      () => this.end({ code: null, message: 'the gateway ended the endpoint' }),
      (error) => this.end(parseListenerClosed(error, secret)),
    );
  }
}
