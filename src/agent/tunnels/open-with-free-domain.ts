import type { OpenTunnel } from './tunnel-opener.ts';

/** Attempts before giving up on a gateway that keeps choosing domains in use. */
const MAX_CHOICES = 16;

/**
 * Opens an endpoint whose domain the gateway chooses. The gateway may choose the domain of a tunnel that is offline just
 * now. Such endpoints stay open until it has chosen another domain, or it could choose the same one again.
 *
 * @param open asks the gateway for an endpoint
 * @param claim claims its domain for the new tunnel; throws when the domain is in use
 * @param discard closes an endpoint that is not used; never rejects
 * @throws what `open` throws, or the last error of `claim`
 */
export async function openWithFreeDomain(
  open: () => Promise<OpenTunnel>,
  claim: (open: OpenTunnel) => void,
  discard: (open: OpenTunnel) => Promise<void>,
): Promise<OpenTunnel> {
  const unusable: OpenTunnel[] = [];
  try {
    for (;;) {
      const chosen = await open();
      try {
        claim(chosen);
        return chosen;
      } catch (error) {
        unusable.push(chosen);
        if (unusable.length === MAX_CHOICES) throw error;
      }
    }
  } finally {
    await Promise.all(unusable.map(discard));
  }
}
