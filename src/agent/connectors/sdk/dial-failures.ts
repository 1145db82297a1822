import { loggingCallback } from '@ngrok/ngrok';

const watchers = new Set<() => void>();

/**
 * Tells when the SDK could not connect to an upstream for a client. The SDK (1.7.0) only logs that, without saying to which
 * upstream, to the one callback of the process.
 *
 * @returns ends it
 */
export function watchDialFailures(onFailure: () => void): () => void {
  const watcher = () => onFailure();
  watchers.add(watcher);
  if (watchers.size === 1) loggingCallback(report, 'WARN');
  return () => {
    if (watchers.delete(watcher) && watchers.size === 0) loggingCallback();
  };
}

function report(_level: string, target: string, message: string): void {
  if (target !== 'ngrok::tunnel_ext' || !message.startsWith('error connecting to upstream')) return;
  for (const watcher of watchers) watcher();
}
