import type { BegunSignIn } from '../../src/traffic-policy/ports.ts';

export const ISSUER = 'https://idp.example.com';

/** A sign-in of somebody, as the gate reports it. */
export function beginning({ subject = 'jo', host = 'cam.example.com', ...more }: Beginning = {}): BegunSignIn {
  return {
    issuer: ISSUER,
    person: { subject, email: `${subject}@example.com`, name: subject.toUpperCase() },
    publicUrl: `https://${host ?? 'cam.example.com'}`,
    host,
    endpointId: 'ep_1',
    clientIp: '203.0.113.7',
    userAgent: 'curl/8.5.0',
    expiresAt: Date.now() + 3_600_000,
    ...more,
  };
}

type Beginning = Partial<BegunSignIn> & { subject?: string };
