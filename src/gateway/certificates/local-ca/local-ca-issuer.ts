import type { CertificateIssuer, IssuedCertificate, IssueRequest } from '../issuing/certificate-issuer.ts';
import { makePrivateKey } from '../issuing/private-key.ts';
import type { LocalCa } from './local-ca.ts';

/** Issues certificates with the gateway's own CA, without checking DNS. Only clients that trust this CA accept them. */
export class LocalCaIssuer implements CertificateIssuer {
  readonly usesOurClock = true;
  /** Settles when the last key has been generated. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(private readonly ca: Pick<LocalCa, 'certify'>) {}

  async issue({ domain, privateKeyType }: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const privateKeyPem = await this.#makeKey(privateKeyType, signal);
    return { certificatePem: await this.ca.certify([domain], privateKeyPem), privateKeyPem };
  }

  /**
   * Generates one key at a time: on a small device an RSA key blocks one of the few worker threads for up to a minute, and
   * they also write files and look up names.
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
