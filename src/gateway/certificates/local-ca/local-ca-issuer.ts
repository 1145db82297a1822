import type { CertificateIssuer, IssuedCertificate, IssueRequest } from '../issuing/certificate-issuer.ts';
import { makePrivateKey } from '../issuing/private-key.ts';
import type { LocalCa } from './local-ca.ts';

/** Issues with the gateway's own CA: without a look at DNS, trusted by whoever trusts that CA. */
export class LocalCaIssuer implements CertificateIssuer {
  readonly usesOurClock = true;
  /** Settles when the latest key is made. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(private readonly ca: Pick<LocalCa, 'certify'>) {}

  async issue({ domain, privateKeyType }: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const privateKeyPem = await this.#makeKey(privateKeyType, signal);
    return { certificatePem: await this.ca.certify([domain], privateKeyPem), privateKeyPem };
  }

  /**
   * One at a time: on a small device an RSA key takes up to a minute of a thread, and the few threads there are have
   * to write files and look up names meanwhile.
   */
  #makeKey(type: 'rsa' | 'ecdsa', signal: AbortSignal): Promise<string> {
    const key = this.#turn.then(() => {
      signal.throwIfAborted();
      return makePrivateKey(type);
    });
    this.#turn = key.catch(() => {});
    return key;
  }
}
