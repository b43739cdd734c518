import { render } from 'preact';
import { App } from './app';
import './style/base.css';
import './style/parts.css';
import './style/layout.css';

render(<App />, document.querySelector('#console')!);
