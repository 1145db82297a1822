import { render } from 'preact';
import { App } from './app.tsx';
import { session } from './model.ts';
import '../ui/theme.css';
import '../ui/components.css';
import '../ui/frame.css';
import './device.css';

const root = document.getElementById('page');
if (root) {
  render(<App />, root);
  void session.open();
}
