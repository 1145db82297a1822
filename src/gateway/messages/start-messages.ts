import type { GatewayContext } from '../context/gateway-context.ts';
import type { MessageEngine, MessageSources } from './message-engine.ts';

/** How often conditions are looked at. */
export const LOOK_MS = 15_000;

/**
 * Tells people what is wrong, once there is a rule: the code is loaded then, as most gateways on small devices never have one.
 * @returns stops it; resolves when nothing is written any more
 */
export function startMessages(
  context: Pick<GatewayContext, 'store' | 'clock' | 'log'>,
  own: MessageSources,
): () => Promise<void> {
  const { store, clock } = context;
  let engine: MessageEngine | null = null;
  let looking: Promise<void> = Promise.resolve();
  let isStopped = false;
  let cancel = () => {};
  const look = async () => {
    if (engine === null && store.messageRules.page(null, 1).length === 0) return;
    const { MessageEngine } = await import('./message-engine.ts');
    engine ??= new MessageEngine(context, own);
    await engine.look();
  };
  const next = () => {
    cancel = clock.after(LOOK_MS, () => {
      looking = look().finally(() => {
        if (!isStopped) next();
      });
    });
  };
  next();
  return async () => {
    isStopped = true;
    cancel();
    await looking;
    engine?.stop();
  };
}
