import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';

/** An SMTP server on this machine, and the mail that it has taken. */
export interface MailServer {
  readonly port: number;
  readonly mails: string[];
  /** Message-IDs of all mails that clients have begun to send, also of those that were refused. */
  readonly attempts: string[];
  close(): Promise<void>;
}

/** An answer of the server that is no success. */
export function smtpAnswer(responseCode: number, message: string): Error {
  return Object.assign(new Error(message), { responseCode });
}

/** @param decide answers each mail once it is there: null takes it */
export async function startMailServer(
  options: SMTPServerOptions = {},
  decide: (attempt: number) => Error | null = () => null,
): Promise<MailServer> {
  const mails: string[] = [];
  const attempts: string[] = [];
  const server = new SMTPServer({
    ...{ authOptional: true, disableReverseLookup: true, logger: false, hideENHANCEDSTATUSCODES: false },
    onData(stream, _session, done) {
      text(stream).then((mail) => {
        attempts.push(/^Message-ID: <(.*)>\r$/m.exec(mail)?.[1] ?? '');
        const refusal = decide(attempts.length);
        if (refusal === null) mails.push(mail);
        done(refusal, 'OK: queued as 4XYZ');
      }, done);
    },
    ...options,
  });
  // Connections that clients give up are part of the tests.
  server.on('error', () => {});
  const listening = server.listen(0, '127.0.0.1');
  if (!listening.listening) await once(listening, 'listening');
  return {
    port: (listening.address() as AddressInfo).port,
    mails,
    attempts,
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}
