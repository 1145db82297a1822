import 'reflect-metadata'; // a dependency of the library needs it
import { SettingsService, verifyAuthenticationResponse, verifyRegistrationResponse } from '@simplewebauthn/server';
import { z } from 'zod';
import type { PasskeyRow } from '../../store/people.ts';
import { ALGORITHMS } from './passkey-forms.ts';

// Nobody asks which maker an authenticator is of. With these, certificates that somebody sends would make the gateway fetch
// the lists of revoked ones that they name.
for (const identifier of ['android-key', 'android-safetynet', 'apple'] as const) {
  SettingsService.setRootCertificates({ identifier, certificates: [] });
}

const Base64Url = z.string().regex(/^[\w-]{1,8000}$/);

const common = {
  id: Base64Url,
  rawId: Base64Url,
  type: z.literal('public-key'),
  // The page asks for no extensions.
  clientExtensionResults: z.looseObject({}).transform(() => ({})),
};

const Creation = z.object({
  ...common,
  response: z.object({ clientDataJSON: Base64Url, attestationObject: Base64Url }),
});

const Assertion = z.object({
  ...common,
  response: z.object({ clientDataJSON: Base64Url, authenticatorData: Base64Url, signature: Base64Url }),
});

/** What a browser's response has to be about. */
export interface Expected {
  readonly challenge: string;
  /** Of the page, with its port. */
  readonly origin: string;
  readonly host: string;
}

/** @returns the passkey that a browser has made; null when the response is not what was asked for */
export async function createdPasskey(
  text: string,
  { challenge, origin, host }: Expected,
): Promise<Pick<PasskeyRow, 'credential_id' | 'public_key' | 'counter' | 'name'> | null> {
  const response = Creation.safeParse(jsonOf(text)).data;
  if (response === undefined) return null;
  const verified = await verifyRegistrationResponse({
    response,
    expectedChallenge: challenge,
    expectedOrigin: origin,
    expectedRPID: host,
    requireUserVerification: true,
    supportedAlgorithmIDs: ALGORITHMS,
  }).catch(ignore);
  if (!verified?.verified) return null;
  const { credential, credentialBackedUp } = verified.registrationInfo;
  return {
    credential_id: credential.id,
    public_key: Buffer.from(credential.publicKey),
    counter: credential.counter,
    name: credentialBackedUp ? 'synced passkey' : 'passkey of one device',
  };
}

/**
 * Finds out who signs in with a passkey; `find` looks up the one that the response names.
 * @returns the passkey, with its counter as of now; null when it is unknown, or the response not what was asked for
 */
export async function usedPasskey(
  text: string,
  { challenge, origin, host }: Expected,
  find: (credentialId: string) => PasskeyRow | null,
): Promise<PasskeyRow | null> {
  const response = Assertion.safeParse(jsonOf(text)).data;
  const row = response === undefined ? null : find(response.id);
  if (response === undefined || row === null) return null;
  const verified = await verifyAuthenticationResponse({
    response,
    expectedChallenge: challenge,
    expectedOrigin: origin,
    expectedRPID: host,
    credential: { id: row.credential_id, publicKey: new Uint8Array(row.public_key), counter: row.counter },
    requireUserVerification: true,
  }).catch(ignore);
  return verified?.verified ? { ...row, counter: verified.authenticationInfo.newCounter } : null;
}

/** The library throws for whatever is wrong with a response, which anyone can send. */
function ignore(): null {
  return null;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Anyone can send anything; the schemas refuse it.
    return null;
  }
}
