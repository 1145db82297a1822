import type { OpenTunnel } from './tunnel-opener.ts';

/** A gateway that chooses claimed names again and again is not asked for ever. */
const MAX_CHOICES = 16;

/**
 * Opens an endpoint whose name the gateway chooses. What it finds free may be the name of a tunnel that is not up just now;
 * such endpoints are kept until another name was chosen, for the gateway might choose the same one again.
 *
 * @param open asks the gateway for an endpoint
 * @param claim takes its name; throws when the name is taken
 * @param discard closes an endpoint that is not used; never rejects
 * @throws what `open` does, or the last `claim`
 */
export async function openUnclaimed(
  open: () => Promise<OpenTunnel>,
  claim: (open: OpenTunnel) => void,
  discard: (open: OpenTunnel) => Promise<void>,
): Promise<OpenTunnel> {
  const claimed: OpenTunnel[] = [];
  try {
    for (;;) {
      const chosen = await open();
      try {
        claim(chosen);
        return chosen;
      } catch (error) {
        claimed.push(chosen);
        if (claimed.length === MAX_CHOICES) throw error;
      }
    }
  } finally {
    await Promise.all(claimed.map(discard));
  }
}
