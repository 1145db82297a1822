import { randomBytes } from 'node:crypto';
import { createEnrolmentKey, joinCode } from '../../src/gateway/devices/invite.ts';
import { gatewayDomains } from '../../src/gateway/endpoints/domain-names.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import { EnrolmentKeyCreate } from '../../src/management/resources/enrolment.ts';
import type { TestGateway } from './gateway.ts';

/** Creates an enrolment key for `*.site.example.com`, or as the members say; returns its id and secret. */
export async function enrolmentKey(
  { store }: { store: Store },
  members: Partial<EnrolmentKeyCreate> = {},
): Promise<{ id: string; secret: string }> {
  const body = EnrolmentKeyCreate.parse({ site: '*.site.example.com', ...members });
  const { key, secret } = await store.database.write(() =>
    createEnrolmentKey(store, gatewayDomains('gateway.test'), body),
  );
  return { id: key.id, secret };
}

/** The code with which devices join a gateway, of a new enrolment key. */
export async function inviteTo(gateway: TestGateway, members: Partial<EnrolmentKeyCreate> = {}): Promise<string> {
  const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost', ...members });
  return joinCode({ origin: gateway.apiUrl, isProxied: false, caPem: gateway.sessionCa, publicNames: 'none' }, secret);
}

/** The key that an installation makes for itself. */
export function installKey(): string {
  return randomBytes(32).toString('base64url');
}
