import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Button } from './button.tsx';
import { Notice } from './notice.tsx';

type Component<Props> = (props: Props) => JSX.Element;

/**
 * A part of a page that is loaded when it is shown.
 *
 * @param what what people call it, such as `The inspector`
 */
export function lazy<Props extends object>(what: string, load: () => Promise<Component<Props>>): Component<Props> {
  return function Lazy(props: Props) {
    const loaded = useSignal<{ View: Component<Props> } | 'failed' | null>(null);
    useEffect(() => {
      load().then(
        (View) => {
          loaded.value = { View };
        },
        () => {
          loaded.value = 'failed';
        },
      );
    }, []);
    if (loaded.value === null) return <p class="loading">Loading…</p>;
    if (loaded.value === 'failed') {
      // Such as after an update, as files have other names then.
      return (
        <Notice tone="warning">
          <p>{what} could not be loaded.</p>
          <Button onClick={() => window.location.reload()}>Reload the page</Button>
        </Notice>
      );
    }
    const { View } = loaded.value;
    return <View {...props} />;
  };
}
