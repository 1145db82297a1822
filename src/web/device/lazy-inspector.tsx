import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Button } from '../ui/button.tsx';
import { Notice } from '../ui/notice.tsx';
import type { InspectorProps } from './inspector/inspector.tsx';

type Component = (props: InspectorProps) => JSX.Element;

/** The traffic inspector, loaded when it is opened. */
export function LazyInspector(props: InspectorProps): JSX.Element {
  const loaded = useSignal<{ Inspector: Component } | 'failed' | null>(null);
  useEffect(() => {
    import('./inspector/inspector.tsx').then(
      (module) => {
        loaded.value = module;
      },
      () => {
        loaded.value = 'failed';
      },
    );
  }, []);
  if (loaded.value === null) return <p class="loading">Loading…</p>;
  if (loaded.value === 'failed') {
    // Such as after an update of the agent, which has files of other names.
    return (
      <Notice tone="warning">
        <p>The inspector could not be loaded.</p>
        <Button onClick={() => window.location.reload()}>Reload the page</Button>
      </Notice>
    );
  }
  const { Inspector } = loaded.value;
  return <Inspector {...props} />;
}
